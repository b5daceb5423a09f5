"""Saving: what is written is what was meant, and what was there before survives a failure."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy

import lazyparam as lp
from tests import checkpoint_files as files
from tests.checkpoint_files import CUBE, LAYOUTS, TAGS, bits_of, table
from tests.helpers import Boom, Counting, Linear, Tied, never, race


class Box(lp.Module):
    """One parameter: ``t``."""

    def __init__(self, param: lp.Param[Any]) -> None:
        self.t = param


class Named(lp.Module):
    """Parameters by name."""

    def __init__(self, **params: Any) -> None:
        self.__dict__.update(params)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_array_of_any_layout_is_saved_as_what_it_shows(layout: str, tmp_path: Path) -> None:
    array = LAYOUTS[layout](CUBE)
    path = tmp_path / "model.safetensors"
    model = Box(lp.Param.from_tensor(array))
    model.save_file(path)
    by_safetensors = safetensors.numpy.load_file(path)["t"]
    assert by_safetensors.shape == array.shape
    assert np.array_equal(by_safetensors, array)
    for mode in ("copy", "view"):
        loaded = Box(lp.Param(array.shape, never)).load_file(path, mode=mode).t
        assert np.array_equal(loaded.value, array)
        assert loaded.value.dtype.isnative


def test_only_the_bytes_that_an_array_shows_get_into_the_file(tmp_path: Path) -> None:
    secret = np.full(1000, 0x5EC2E7, np.int32)
    secret[500:502] = [1, 2]
    path = tmp_path / "model.safetensors"
    for view in (secret[501:499:-1], np.broadcast_to(secret[500:502], (9, 2)), secret[500:502]):
        Box(lp.Param.from_tensor(view)).save_file(path)
        assert np.int32(0x5EC2E7).tobytes() not in path.read_bytes()


@pytest.mark.parametrize("name", TAGS)
def test_the_reference_reads_what_is_written_and_writes_what_is_read(
    name: str, tmp_path: Path
) -> None:
    array = bits_of(name, 12).reshape(3, 4)
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    Box(lp.Param.from_tensor(array)).save_file(ours)
    with safetensors.safe_open(ours, "numpy") as file:
        piece = file.get_slice("t")
        assert (piece.get_dtype(), piece.get_shape()) == (TAGS[name], [3, 4])
    safetensors.numpy.save_file({"t": np.ascontiguousarray(array)}, theirs)
    raw = theirs.read_bytes()
    loaded = Box(lp.Param((3, 4), never, dtype=name)).load_file(theirs).t
    assert loaded.value.tobytes() == array.tobytes()
    assert ours.read_bytes()[-array.nbytes :] == raw[-array.nbytes :]


def test_metadata_is_written_and_given_back(tmp_path: Path) -> None:
    metadata = {"format": "np", "naïve \u6a21": 'line\nbreak \\ "quote" \u2028', "": ""}
    path = tmp_path / "model.safetensors"
    Box(lp.Param(2, lp.init.ones())).save_file(path, metadata=metadata)
    with safetensors.safe_open(path, "numpy") as file:
        assert file.metadata() == metadata
    assert Box(lp.Param(2)).plan_load(path).metadata == metadata


@pytest.mark.parametrize("metadata", [{"a": 1}, {1: "a"}, {"a": None}, {"a": b"b"}], ids=repr)
def test_metadata_that_is_no_text_is_refused_and_nothing_is_written(
    metadata: Any, tmp_path: Path
) -> None:
    with pytest.raises(lp.RecordError, match="metadata"):
        Box(lp.Param(2, never)).save_file(tmp_path / "x", metadata=metadata)
    assert os.listdir(tmp_path) == []


# ---- what happens to the file -------------------------------------------------------------------


@pytest.fixture
def umask() -> Iterator[Callable[[int], None]]:
    before = os.umask(0o022)
    yield lambda mask: (os.umask(mask), None)[1]
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.thread_unsafe(reason="sets the umask of the process")
@pytest.mark.parametrize("mask", [0o022, 0o002, 0o077, 0o000])
def test_a_new_file_has_the_mode_that_every_new_file_has(
    mask: int, umask: Callable[[int], None], tmp_path: Path
) -> None:
    umask(mask)
    path = tmp_path / "model.safetensors"
    Linear(3, 2, lp.init.ones()).save_file(path)
    assert mode_of(path) == 0o666 & ~mask


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o640, 0o444])
def test_a_file_that_is_replaced_keeps_its_mode(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"old")
    path.chmod(mode)
    Linear(3, 2, lp.init.ones()).save_file(path)
    assert mode_of(path) == mode
    assert Linear(3, 2).load_file(path).bias.value.tolist() == [1, 1]
    assert os.listdir(tmp_path) == ["model.safetensors"]


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root gives files away")
def test_a_file_that_is_replaced_keeps_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"old")
    os.chown(path, 1234, 4321)
    path.chmod(0o640)
    Linear(3, 2, lp.init.ones()).save_file(path)
    status = path.stat()
    assert (status.st_uid, status.st_gid, mode_of(path)) == (1234, 4321, 0o640)


@pytest.mark.parametrize("there", [True, False], ids=["leading somewhere", "dangling"])
def test_a_link_stays_a_link_and_its_target_is_written(there: bool, tmp_path: Path) -> None:
    blob = tmp_path / "blobs" / "0123"
    blob.parent.mkdir()
    if there:
        blob.write_bytes(b"old")
    middle, link = tmp_path / "middle", tmp_path / "model.safetensors"
    middle.symlink_to("blobs/0123")
    link.symlink_to(middle)
    Linear(3, 2, lp.init.ones()).save_file(link)
    assert link.is_symlink()
    assert middle.is_symlink()
    assert os.listdir(blob.parent) == ["0123"]
    assert Linear(3, 2).load_file(blob).bias.value.tolist() == [1, 1]


def test_another_name_of_the_file_keeps_the_old_contents(tmp_path: Path) -> None:
    path, other = tmp_path / "model.safetensors", tmp_path / "hard link"
    path.write_bytes(b"old")
    os.link(path, other)
    Linear(3, 2, lp.init.ones()).save_file(path)
    assert other.read_bytes() == b"old"


def refusals() -> dict[str, lp.Module]:
    """Models that cannot be saved."""
    return {
        "an initialiser fails midway": Linear(3, 2, Counting(failures=9)),
        "a dtype that no file can hold": Named(
            a=lp.Param(2, lp.init.ones()), z=lp.Param(2, lp.init.ones(), dtype="complex128")
        ),
        "a name that is taken": Named(__metadata__=lp.Param(2, lp.init.ones())),
        "half a byte": Box(lp.Param(3, lp.init.ones(), dtype="float4_e2m1fn")),
        "a save mapper fails": Box(lp.Param(3, lp.init.ones()).save_mapper(lambda x: 1 / 0)),
        "a save mapper gives no array": Box(lp.Param(3, lp.init.ones()).save_mapper(list)),
        "nothing to be had": Box(lp.Param(3)),
    }


REFUSED = {
    "an initialiser fails midway": (Boom, "run 1"),
    "a dtype that no file can hold": (lp.RecordError, 'tensor "z".*complex128'),
    "a name that is taken": (lp.RecordError, 'tensor "__metadata__"'),
    "half a byte": (lp.RecordError, 'tensor "t".*3 elements of 4 bits'),
    "a save mapper fails": (ZeroDivisionError, "division"),
    "a save mapper gives no array": (lp.InitError, "t: this is not an array.*found list"),
    "nothing to be had": (lp.InitError, "t: this parameter has no initialiser"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_save_that_fails_leaves_what_was_there_and_nothing_else(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"old")
    kind, match = REFUSED[name]
    with pytest.raises(kind, match=match):
        refusals()[name].save_file(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model.safetensors"]


def test_a_save_that_runs_out_of_room_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"old")
    done = files.run_python(
        """
        import resource, sys
        import lazyparam as lp
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        model = lp.Module()
        model.t = lp.Param(1 << 20, lp.init.ones())
        try:
            model.save_file(sys.argv[1])
        except OSError as error:
            print(error.strerror, "|", error.filename)
        """,
        path,
    )
    assert done.stdout.strip() == f"File too large | {path}", done.stderr
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model.safetensors"]


def test_a_folder_that_may_not_be_written_is_a_permission_error(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"old")
    tmp_path.chmod(0o555)
    # Root may write everywhere, so the process becomes somebody else first.
    done = files.run_python(
        """
        import os, sys
        import lazyparam as lp
        from tests.helpers import Linear
        model = Linear(3, 2, lp.init.ones()).initialize()
        os.chdir(sys.argv[1])
        if os.getuid() == 0:
            os.setuid(65534)
        try:
            model.save_file("model.safetensors")
        except PermissionError as error:
            print(error.strerror, "|", error.filename)
        """,
        tmp_path,
    )
    tmp_path.chmod(0o755)
    assert done.stdout.strip() == "Permission denied | model.safetensors", done.stderr
    assert (tmp_path / "model.safetensors").read_bytes() == b"old"


def make_folder(path: Path) -> None:
    path.mkdir()


def make_circle(path: Path) -> None:
    path.symlink_to(path)


TARGETS: dict[str, tuple[Callable[[Path], None], type[OSError], str]] = {
    "folder": (make_folder, IsADirectoryError, "directory"),
    "pipe": (os.mkfifo, OSError, "a device, a pipe or a socket"),
    "circle": (make_circle, OSError, "circle"),
}


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_that_cannot_be_a_file_is_refused(name: str, tmp_path: Path) -> None:
    make, kind, word = TARGETS[name]
    path = tmp_path / "model.safetensors"
    make(path)
    with pytest.raises(kind, match=word) as caught:
        Linear(3, 2, lp.init.ones()).save_file(path)
    assert str(path) in str(caught.value)
    assert os.listdir(tmp_path) == ["model.safetensors"]


def test_a_folder_that_is_not_there_is_a_file_not_found_error(tmp_path: Path) -> None:
    path = tmp_path / "no" / "such" / "folder"
    with pytest.raises(FileNotFoundError) as caught:
        Linear(3, 2, lp.init.ones()).save_file(path)
    assert (caught.value.filename, caught.value.strerror) == (
        str(path),
        "No such file or directory",
    )


@pytest.mark.parametrize("read_first", [False, True], ids=["unread", "read"])
@pytest.mark.parametrize("mode", ["copy", "view"])
def test_a_model_can_be_saved_over_the_file_that_it_was_loaded_from(
    mode: str, read_first: bool, tmp_path: Path
) -> None:
    arrays = {
        "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
        "bias": np.ones(2, np.float32),
    }
    path = tmp_path / "model.safetensors"
    path.write_bytes(table(arrays))
    model = Linear(3, 2).load_file(path, mode=mode)
    if read_first:
        _ = model.weight.value
    model.bias = model.bias.map(lambda x: x + 1)
    model.save_file(path)
    again = Linear(3, 2).load_file(path, mode=mode)
    for each in (model, again):
        assert np.array_equal(each.weight.value, arrays["weight"])
        assert each.bias.value.tolist() == [2, 2]


def test_two_saves_at_once_leave_one_of_the_two_whole(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    models = [Box(lp.Param(50_000, lp.init.constant(at))).initialize() for at in range(4)]
    results = race([lambda model=model: model.save_file(path) for model in models])
    assert results == [None] * 4
    value = Box(lp.Param(50_000)).load_file(path).t.value
    assert value[0] in range(4)
    assert (value == value[0]).all()
    assert os.listdir(tmp_path) == ["model.safetensors"]


# ---- what is in the file ------------------------------------------------------------------------


def test_tied_params_are_saved_once(tmp_path: Path) -> None:
    """B52: saved once, under the first path."""
    path = tmp_path / "model.safetensors"
    Tied(lp.init.ones()).save_file(path)
    assert sorted(safetensors.numpy.load_file(path)) == [
        "embed",
        "middle.0.bias",
        "middle.0.weight",
        "middle.1.bias",
        "middle.1.weight",
    ]


def test_constants_are_not_saved(tmp_path: Path) -> None:
    """B42: a plain array attribute is not recorded."""
    path = tmp_path / "model.safetensors"
    model = Linear(3, 2, lp.init.ones())
    model.mask = np.zeros(4)
    model.names = {"a": [np.ones(2), "b"]}
    model.save_file(path)
    assert sorted(safetensors.numpy.load_file(path)) == ["bias", "weight"]


ODD_KEYS = ["ключ", "\u6a21\u578b", "a b", "", "a\nb", "a\0b", '"', "\\", "../x", "\U0001f600", "0"]


def test_keys_with_odd_characters_are_saved_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    params = {key: lp.Param((), lp.init.constant(at)) for at, key in enumerate(ODD_KEYS)}
    Named(of=params).save_file(path)
    assert sorted(safetensors.numpy.load_file(path)) == sorted(f"of.{key}" for key in ODD_KEYS)
    loaded = Named(of={key: lp.Param((), never) for key in ODD_KEYS}).load_file(path)
    assert [int(loaded.of[key].value) for key in ODD_KEYS] == list(range(len(ODD_KEYS)))


@pytest.mark.parametrize(
    ("tree", "path"),
    [
        ({"a.b": lp.Param(1, never), "a": {"b": lp.Param(1, never)}}, "of.a.b"),
        ({"1": lp.Param(1, never), 1: lp.Param(1, never)}, "of.1"),
        ({"x.0": lp.Param(1, never), "x": [lp.Param(1, never)]}, "of.x.0"),
    ],
    ids=["dots", "numbers", "lists"],
)
def test_two_leaves_at_one_path_are_refused(tree: Any, path: str, tmp_path: Path) -> None:
    model = Named(of=tree)
    out, empty = tmp_path / "out", tmp_path / "empty"
    empty.write_bytes(table({}))
    for attempt in (
        lambda: model.save_file(out),
        lambda: model.load_file(empty, strict=False),
        model.state_dict,
        model.initialize,
        lambda: list(model.named_parameters()),
        lambda: model.clone(),
        lambda: lp.summary(model),
    ):
        with pytest.raises(lp.ModuleError) as caught:
            attempt()
        assert str(caught.value) == f"{path}: two parameters have this path"
    assert not out.exists()
