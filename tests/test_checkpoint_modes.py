"""How tensors get from files into memory: copies and views, one file and several, every dtype."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import lazyparam as lp
from tests import checkpoint_files as files
from tests.checkpoint_files import PACKED, TAGS, bits_of, table
from tests.helpers import Linear, never

BOTH = pytest.mark.parametrize("mode", ["copy", "view"])


class Tensors(lp.Module):
    """Parameters for these arrays, none of which has an initialiser that may run."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.of = {
            name: lp.Param(array.shape, never, dtype=array.dtype) for name, array in arrays.items()
        }


def load(path: Path, arrays: Mapping[str, np.ndarray], mode: str) -> dict[str, lp.Param]:
    """The parameters that a checkpoint of these arrays gives."""
    return Tensors(arrays).load_file(path, rename=lambda name: f"of.{name}", mode=mode).of


def owner(array: np.ndarray) -> object:
    """Whose memory it is."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array


def same_bits(left: np.ndarray, right: np.ndarray) -> bool:
    """Equal in every bit, NaN included."""
    return (left.shape, left.dtype, left.tobytes()) == (right.shape, right.dtype, right.tobytes())


SHAPES = [(), (0,), (3, 0, 2), (8,), (4, 2)]


@BOTH
@pytest.mark.parametrize("name", [*TAGS, *PACKED])
def test_every_dtype_comes_back_bit_for_bit(name: str, mode: str, tmp_path: Path) -> None:
    # Elements that share bytes have to fill whole ones, so there is no single one of them.
    shapes = [shape for shape in SHAPES if shape or name not in PACKED]
    arrays = {
        str(shape): bits_of(name, int(np.prod(shape)), seed).reshape(shape)
        for seed, shape in enumerate(shapes)
    }
    path, copy = tmp_path / "model.safetensors", tmp_path / "copy.safetensors"
    path.write_bytes(table(arrays))
    loaded = load(path, arrays, mode)
    for key, array in arrays.items():
        assert loaded[key].dtype == name
        assert same_bits(loaded[key].value, array), key
    Tensors(arrays).load_file(path, rename=lambda key: f"of.{key}").save_file(copy)
    for key, param in Tensors(arrays).load_file(copy).of.items():
        assert same_bits(param.value, arrays[key]), key


@BOTH
@pytest.mark.parametrize("count", [1, 1000, 3 << 20])
def test_an_array_is_read_only_and_aligned_and_its_memory_is_where_the_mode_says(
    mode: str, count: int, tmp_path: Path
) -> None:
    arrays = {"t": np.arange(count, dtype=np.float64)}
    path = tmp_path / "model.safetensors"
    path.write_bytes(table(arrays))
    value = load(path, arrays, mode)["t"].value
    assert same_bits(value, arrays["t"])
    assert value.ctypes.data % (64 if mode == "copy" else 8) == 0
    assert owner(value).is_mapped is (mode == "view")
    assert not value.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        value[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        value.flags.writeable = True
    maps = [line for line in Path("/proc/self/maps").read_text().splitlines() if str(path) in line]
    assert bool(maps) is (mode == "view")
    assert all(" r--p " in line for line in maps), "a map must not be writable"


@BOTH
def test_a_tensor_that_does_not_lie_on_its_item_size_is_copied_and_the_others_are_not(
    mode: str, tmp_path: Path
) -> None:
    arrays = {
        "first": np.arange(8, dtype=np.float32),
        "odd": np.arange(3, dtype=np.uint8),
        "after": np.arange(5, dtype=np.float32),
    }
    path = tmp_path / "model.safetensors"
    path.write_bytes(table(arrays, off=4))
    loaded = load(path, arrays, mode)
    for name, array in arrays.items():
        assert same_bits(loaded[name].value, array)
    mapped = {name: owner(param.value).is_mapped for name, param in loaded.items()}
    assert mapped == {"first": mode == "view", "odd": mode == "view", "after": False}
    assert loaded["after"].value.ctypes.data % 64 == 0


@BOTH
@pytest.mark.parametrize("after", ["removed", "renamed", "replaced"])
def test_what_happens_to_the_path_after_a_load_does_not_matter(
    after: str, mode: str, tmp_path: Path
) -> None:
    arrays = {"t": np.arange(9, dtype=np.int64), "u": np.ones(3)}
    path = tmp_path / "model.safetensors"
    path.write_bytes(table(arrays))
    loaded = load(path, arrays, mode)
    assert same_bits(loaded["t"].value, arrays["t"])
    other = tmp_path / "other"
    if after == "removed":
        path.unlink()
    elif after == "renamed":
        path.rename(other)
    else:
        other.write_bytes(table({"t": np.zeros(9, np.int64), "u": np.zeros(3)}))
        other.replace(path)
    assert same_bits(loaded["t"].value, arrays["t"])
    assert same_bits(loaded["u"].value, arrays["u"])


TRUNCATED = """
    import os, sys
    import numpy as np
    import lazyparam as lp
    path, mode = sys.argv[1:]
    model = lp.Module()
    model.t = lp.Param(1 << 16)
    model.u = lp.Param(4)
    loaded = model.load_file(path, mode=mode)
    assert loaded.u.value.tolist() == [7, 7, 7, 7]
    os.truncate(path, os.path.getsize(path) // 2)
    for _ in range(2):
        try:
            loaded.t.value
        except lp.FormatError as error:
            print(str(error).replace("\\n", " "))
    assert not loaded.t.is_initialized
"""


@BOTH
def test_a_file_that_was_cut_short_after_the_load_is_an_error_and_no_crash(
    mode: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(table({"u": np.full(4, 7, np.float32), "t": np.ones(1 << 16, np.float32)}))
    size = path.stat().st_size
    # A process of its own: should a map be touched behind its end, that ends the process.
    done = files.run_python(TRUNCATED, path, mode)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == second
    assert first.startswith(f'{path}: tensor "t": the file changed since it was opened')
    assert f"expected {size} bytes; found {size // 2} bytes" in first


@BOTH
def test_a_file_that_grew_after_the_load_is_not_read_until_it_is_as_it_was(
    mode: str, tmp_path: Path
) -> None:
    arrays = {"t": np.arange(9, dtype=np.int64)}
    path = tmp_path / "model.safetensors"
    path.write_bytes(table(arrays))
    loaded = load(path, arrays, mode)["t"]
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"x")
    with pytest.raises(lp.FormatError, match=f"expected {size} bytes; found {size + 1} bytes"):
        _ = loaded.value
    path.write_bytes(table(arrays))
    assert same_bits(loaded.value, arrays["t"])


def test_auto_maps_a_file_that_only_its_owner_may_write_and_copies_any_other(
    tmp_path: Path,
) -> None:
    arrays = {"t": np.arange(9, dtype=np.int64)}
    path = tmp_path / "model.safetensors"
    path.write_bytes(table(arrays))
    mapped = {}
    for mode in (0o644, 0o600, 0o664, 0o646):
        path.chmod(mode)
        value = load(path, arrays, "auto")["t"].value
        assert same_bits(value, arrays["t"])
        mapped[mode] = owner(value).is_mapped
    assert (mapped[0o664], mapped[0o646]) == (False, False)
    # Whether a private file is mapped depends on the file system that holds it.
    assert mapped[0o644] == mapped[0o600]


@pytest.mark.parametrize("mode", ["fast", "", "COPY", None])
def test_a_mode_that_there_is_not_is_refused(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(table({"t": np.zeros(1)}))
    with pytest.raises(lp.RecordError, match='expected "auto", "copy" or "view"'):
        Tensors({}).plan_load(path, mode=mode)


# ---- several files -------------------------------------------------------------------------------

SHARDS = {
    "model-1-of-2.safetensors": {"weight": np.arange(6, dtype=np.float32).reshape(2, 3)},
    "model-2-of-2.safetensors": {"bias": np.array([5, 6], np.float32)},
}


@BOTH
@pytest.mark.parametrize("by", ["index", "folder"])
def test_a_checkpoint_in_several_files_is_one_checkpoint(
    by: str, mode: str, tmp_path: Path
) -> None:
    index = files.sharded(tmp_path, SHARDS)
    # A stray file beside an index is none of its business.
    (tmp_path / "stray.safetensors").write_bytes(b"not a checkpoint")
    model = Linear(3, 2).load_file(index if by == "index" else tmp_path, mode=mode)
    assert model.weight.value.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert model.bias.value.tolist() == [5, 6]


def test_shards_that_are_not_there_are_all_listed_before_anything_is_read(tmp_path: Path) -> None:
    index = files.sharded(tmp_path, SHARDS)
    files.write_index(tmp_path, {"weight": "a.safetensors", "bias": "b.safetensors"})
    with pytest.raises(lp.FormatError) as caught:
        Linear(3, 2).load_file(index)
    assert caught.value.path == str(index)
    assert "missing a.safetensors, b.safetensors" in str(caught.value)


def test_a_tensor_that_only_the_files_know_is_loaded_and_remarked_upon(tmp_path: Path) -> None:
    index = files.sharded(tmp_path, {"one.safetensors": {**SHARDS["model-1-of-2.safetensors"]}})
    both = {name: array for shard in SHARDS.values() for name, array in shard.items()}
    (tmp_path / "one.safetensors").write_bytes(table(both))
    plan = Linear(3, 2).plan_load(index)
    assert "bias" in plan.warnings[0]
    assert plan.commit().bias.value.tolist() == [5, 6]


def test_metadata_comes_with_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(table({"t": np.zeros(1)}, metadata={"format": "pt", "é": "\n"}))
    assert Tensors({}).plan_load(path).metadata == {"format": "pt", "é": "\n"}


# ---- across processes ----------------------------------------------------------------------------


@BOTH
def test_a_model_that_is_loaded_and_unread_pickles_as_where_its_tensors_are(
    mode: str, tmp_path: Path
) -> None:
    """B58: as its recipe, not as its weights."""
    arrays = {"t": np.arange(1 << 16, dtype=np.float32)}
    path = tmp_path / "model.safetensors"
    path.write_bytes(table(arrays))
    loaded = load(path, arrays, mode)
    text = pickle.dumps(loaded)
    assert len(text) < 2000
    assert not loaded["t"].is_initialized
    value = pickle.loads(text)["t"].value
    assert same_bits(value, arrays["t"])
    assert owner(value).is_mapped is (mode == "view")


@pytest.mark.parametrize(
    ("instead", "kind", "match"),
    [
        (None, FileNotFoundError, "model.safetensors"),
        (table({"t": np.zeros(5, np.float32)}), lp.FormatError, "not the one that was pickled"),
        (table({"u": np.zeros(4, np.float32)}), lp.FormatError, "not the one that was pickled"),
        (b"", lp.FormatError, "empty"),
    ],
    ids=["nothing", "another shape", "another name", "an empty file"],
)
def test_a_pickle_of_what_is_unread_does_not_take_another_file_for_it(
    instead: bytes | None, kind: type[Exception], match: str, tmp_path: Path
) -> None:
    arrays = {"t": np.zeros(4, np.float32)}
    path = tmp_path / "model.safetensors"
    path.write_bytes(table(arrays))
    text = pickle.dumps(load(path, arrays, "copy"))
    path.unlink()
    if instead is not None:
        path.write_bytes(instead)
    with pytest.raises(kind, match=match):
        pickle.loads(text)
