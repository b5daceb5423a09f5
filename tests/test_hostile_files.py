"""Files that are to be refused, files that are only odd, and things that are no files."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import lazyparam as lp
from tests import checkpoint_files as files
from tests.checkpoint_files import GOOD, entry, one, raw
from tests.helpers import never
from tests.hostile_corpus import BAD_INDEXES, HOSTILE, Bad


class One(lp.Module):
    """One parameter: ``t``, four bytes."""

    def __init__(self) -> None:
        self.t = lp.Param(4, never, dtype="uint8")


def assert_refused(path: Path, words: tuple[str, ...]) -> None:
    """Planning and loading refuse `path` alike, even when not strict, in a whole sentence."""
    model = One()
    texts = set()
    for attempt in (model.plan_load, model.load_file):
        with pytest.raises(lp.FormatError) as caught:
            attempt(path, strict=False)
        texts.add(str(caught.value))
        assert caught.value.path == str(path)
    (text,) = texts
    for word in words:
        assert word in text, text
    # The path leads, and no complaint is cut off or runs on without end.
    assert text.startswith(f"{path}: ")
    assert len(text) < 600
    assert text.count(words[0]) == 1 or not words[0].startswith('"'), text
    assert not model.t.is_initialized


@pytest.mark.parametrize("bad", HOSTILE, ids=[bad.name for bad in HOSTILE])
def test_a_hostile_file_is_refused_and_the_message_says_what_is_wrong(
    bad: Bad, tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(bad.contents)
    assert_refused(path, bad.words)


@pytest.mark.parametrize("bad", BAD_INDEXES, ids=[bad.name for bad in BAD_INDEXES])
def test_a_hostile_index_is_refused_and_the_message_says_what_is_wrong(
    bad: Bad, tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_bytes(bad.contents)
    assert_refused(path, bad.words)


def test_a_tensor_that_is_in_two_shards_is_refused(tmp_path: Path) -> None:
    four = np.zeros(4, np.uint8)
    path = files.sharded(tmp_path, {"a.safetensors": {"t": four}, "b.safetensors": {"t": four}})
    # The index can name only one of them; it has to lead to both files for the double to be seen.
    files.write_index(tmp_path, {"t": "a.safetensors", "u": "b.safetensors"})
    assert_refused(path, ("more than one of its files", "t"))


def test_a_tensor_that_is_not_in_the_shard_that_the_index_names_is_refused(tmp_path: Path) -> None:
    path = files.sharded(tmp_path, {"a.safetensors": {"t": np.zeros(4, np.uint8)}})
    files.write_index(tmp_path, {"t": "a.safetensors", "u": "a.safetensors"})
    assert_refused(path, ("u", "not in the files that the index names"))


def test_a_broken_shard_is_named(tmp_path: Path) -> None:
    index = files.sharded(tmp_path, {"a.safetensors": {"t": np.zeros(4, np.uint8)}})
    shard = tmp_path / "a.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(lp.FormatError, match="cut short") as caught:
        One().load_file(index)
    assert caught.value.path == str(shard)


ACCEPTED = {
    "as it should be": GOOD,
    "leading blanks": raw(f' \n\t{{"t":{entry()}}}', b"1234"),
    "trailing blanks": raw(f'{{"t":{entry()}}}  \n', b"1234"),
    "an odd header length": raw(f'{{"t":{entry()}}} ', b"1234"),
    "metadata is null": raw(f'{{"__metadata__":null,"t":{entry()}}}', b"1234"),
    "metadata is empty": raw(f'{{"__metadata__":{{}},"t":{entry()}}}', b"1234"),
    "metadata comes last": raw(f'{{"t":{entry()},"__metadata__":{{"a":"b"}}}}', b"1234"),
    "an unknown field": one('{"dtype":"U8","shape":[4],"data_offsets":[0,4],"x":[{"y":1e9}]}'),
    "fields in another order": one('{"data_offsets":[0,4],"shape":[4],"dtype":"U8"}'),
    "an escape in the name": raw(f'{{"\\u0074":{entry()}}}', b"1234"),
}


@pytest.mark.parametrize("mode", ["copy", "view"])
@pytest.mark.parametrize("name", ACCEPTED)
def test_an_odd_file_that_breaks_no_rule_is_read(name: str, mode: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(ACCEPTED[name])
    assert One().load_file(path, mode=mode).t.value.tobytes() == b"1234"


@pytest.mark.parametrize(
    "name", ["", "a\0b", "../../etc/passwd", "/etc/passwd", "\u202et", "a b.c"]
)
def test_a_name_is_an_opaque_key_and_never_a_path(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(files.table({name: np.arange(4, dtype=np.uint8)}))
    model = One().load_file(path, rename={name: "t"})
    assert model.t.value.tolist() == [0, 1, 2, 3]
    assert os.listdir(tmp_path) == ["model.safetensors"]
    with pytest.raises(lp.RecordError) as caught:
        One().load_file(path)
    assert f"unexpected {name!r}" in str(caught.value)


def test_a_plan_tells_of_oddities_that_are_no_errors(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(ACCEPTED["an unknown field"])
    plan = One().plan_load(path)
    (warning,) = plan.warnings
    assert '"x" of tensor "t"' in warning
    assert f"note        {warning}" in str(plan)
    path.write_bytes(GOOD)
    assert One().plan_load(path).warnings == ()


def test_bools_of_other_bytes_than_0_and_1_are_true(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(one(entry(dtype='"BOOL"'), b"\x00\x01\x02\xff"))
    model = One()
    model.t = lp.Param(4, never, dtype="bool")
    value = model.load_file(path, mode="copy").t.value
    assert [bool(element) for element in value] == [False, True, True, True]


@pytest.mark.parametrize("name", ["a.safetensors", "deep/er/a.safetensors", os.fsdecode(b"\xff")])
def test_a_file_that_is_not_there_is_a_file_not_found_error(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    with pytest.raises(FileNotFoundError) as caught:
        One().load_file(path)
    assert caught.value.filename == str(path)
    assert caught.value.strerror == "No such file or directory"


def test_a_dangling_link_says_where_it_leads(tmp_path: Path) -> None:
    link = tmp_path / "model.safetensors"
    link.symlink_to("blobs/0123")
    with pytest.raises(FileNotFoundError, match="blobs/0123") as caught:
        One().load_file(link)
    assert caught.value.filename == str(link)


def test_a_link_is_followed_wherever_it_leads(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "0123").write_bytes(GOOD)
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "model.safetensors").symlink_to("../blobs/0123")
    assert One().load_file(tmp_path / "snapshot").t.value.tobytes() == b"1234"


def test_a_file_that_may_not_be_read_is_a_permission_error(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(GOOD)
    path.chmod(0)
    tmp_path.chmod(0o755)
    # Root may read everything, so the process becomes somebody else first.
    done = files.run_python(
        """
        import os, sys
        from tests.test_hostile_files import One
        os.chdir(sys.argv[1])
        if os.getuid() == 0:
            os.setuid(65534)
        try:
            One().load_file("model.safetensors")
        except PermissionError as error:
            print(error.filename, "|", error.strerror)
        """,
        tmp_path,
    )
    assert done.stdout.strip() == "model.safetensors | Permission denied", done.stderr


def test_a_named_pipe_is_refused_and_nobody_waits_for_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    os.mkfifo(path)
    outcome: list[BaseException] = []

    def load() -> None:
        try:
            One().load_file(path)
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive(), "opening a named pipe hangs"
    assert isinstance(outcome[0], lp.FormatError)
    assert "named pipe" in str(outcome[0])


@pytest.mark.skipif(sys.platform == "win32", reason="there is no /dev")
def test_a_device_is_refused() -> None:
    with pytest.raises(lp.FormatError, match="device"):
        One().load_file("/dev/null")


FOLDERS: dict[str, tuple[list[str], str]] = {
    "without a checkpoint": (["config.json", "model.bin"], "no safetensors file"),
    "with two files and no index": (["a.safetensors", "b.safetensors"], "a.safetensors"),
    "with two indexes": (
        ["a.safetensors.index.json", "b.safetensors.index.json"],
        "b.safetensors.index.json",
    ),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_is_refused_unless_it_holds_one_checkpoint(name: str, tmp_path: Path) -> None:
    names, word = FOLDERS[name]
    for each in names:
        (tmp_path / each).write_bytes(GOOD)
    with pytest.raises(lp.FormatError, match="folder") as caught:
        One().load_file(tmp_path)
    assert word in str(caught.value)
    assert caught.value.path == str(tmp_path)


def test_a_plan_of_a_hundred_thousand_tensors_is_whole_and_takes_no_minutes(
    tmp_path: Path,
) -> None:
    count = 100_000
    body = ",".join(f'"t{at}":{entry("[1]", f"[{at},{at + 1}]")}' for at in range(count))
    path = tmp_path / "model.safetensors"
    path.write_bytes(raw(f"{{{body}}}", bytes(count)))
    begin = time.monotonic()
    model = One()
    plan = model.plan_load(path, rename=lambda name: "t" if name == "t7" else name, strict=False)
    assert len(plan.unexpected) == count - 1
    assert time.monotonic() - begin < 15, "a plan should take about a second"
    assert plan.mismatched == {"t": "expected shape (4,), found (1,) in 't7'"}


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(lambda folder: str(folder / "m\u00f6del \u6a21.safetensors"), id="text"),
        pytest.param(lambda folder: folder / "m.safetensors", id="path"),
        pytest.param(lambda folder: folder / "without a suffix", id="other-name"),
    ],
)
def test_a_path_may_be_a_text_or_a_path_and_have_any_name(
    path: Callable[[Path], str | Path], tmp_path: Path
) -> None:
    where = path(tmp_path)
    Path(where).write_bytes(GOOD)
    assert One().load_file(where).t.value.tobytes() == b"1234"


@pytest.mark.parametrize("path", [None, 3, ["a"]], ids=repr)
def test_something_that_is_no_path_is_a_type_error(path: object) -> None:
    with pytest.raises(TypeError):
        One().load_file(path)  # type: ignore[arg-type]
