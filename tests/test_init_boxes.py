"""Boxes, shards, stacks and threads: the same bits as the whole.

Elsewhere values depend on shards and on threads: each test names where. For targets that are
strided, see the tests in Rust.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyparam as lp
from lazyparam.init import Key, fill
from tests.rng_oracle import FLOATS, bits, drawn, keys, shapes

QUICK = settings(max_examples=40, deadline=None)

dtypes = st.sampled_from(FLOATS)
matrices = st.sampled_from([lp.init.eye(), lp.init.sparse(0.4), lp.init.orthogonal()])


@st.composite
def boxes(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[slice, ...]:
    box = []
    for extent in shape:
        first = draw(st.integers(0, extent))
        box.append(slice(first, draw(st.integers(first, extent))))
    return tuple(box)


# ---- boxes ---------------------------------------------------------------------------------------


@given(data=st.data(), key=keys, shape=shapes, init=drawn, dtype=dtypes)
@QUICK
def test_a_box_is_that_slice_of_the_whole(
    data: st.DataObject, key: Key, shape: tuple[int, ...], init: lp.init.Init, dtype: str
) -> None:
    """pytorch/pytorch#168058, #127164, #140301, allenai/OLMo-core#307, #319,
    Lightning-AI/litgpt#269, mlfoundations/open_lm#139, jax-ml/jax#40232, #21232, #17982: a shard is
    not what the same slice is on one device.
    """
    box = data.draw(boxes(shape))
    whole = fill(init, key, shape, dtype)
    part = fill(init, key, shape, dtype, box)
    assert part.shape == whole[box].shape
    assert bits(part) == bits(whole[box])


@given(data=st.data(), key=keys, rows=st.integers(0, 40), cols=st.integers(0, 40), init=matrices)
@QUICK
def test_a_box_of_a_matrix_is_that_slice_of_the_whole(
    data: st.DataObject, key: Key, rows: int, cols: int, init: lp.init.Init
) -> None:
    box = data.draw(boxes((rows, cols)))
    whole = fill(init, key, (rows, cols))
    assert bits(fill(init, key, (rows, cols), box=box)) == bits(whole[box])


@pytest.mark.parametrize("rows", [31, 62, 124])
@pytest.mark.parametrize("mesh", [(1, 2), (2, 1), (3, 1), (2, 2), (3, 5), (7, 4)])
def test_the_shards_of_any_mesh_make_up_the_whole(rows: int, mesh: tuple[int, int]) -> None:
    """pytorch/pytorch#168058, #127164, #140301, allenai/OLMo-core#307, #319,
    Lightning-AI/litgpt#269, mlfoundations/open_lm#139, NVIDIA-NeMo/Megatron-Bridge#5843,
    jax-ml/jax#40232, #21232, #17982: uneven rows and meshes; fans come from the whole shape.
    """
    shape = (rows, 45)
    init = lp.init.xavier_normal()
    cuts = [np.linspace(0, n, m + 1).astype(int) for n, m in zip(shape, mesh, strict=True)]
    shards = [
        [
            fill(init, Key(3, "w"), shape, box=np.s_[a:b, c:d])
            for c, d in zip(cuts[1], cuts[1][1:], strict=False)
        ]
        for a, b in zip(cuts[0], cuts[0][1:], strict=False)
    ]
    assert bits(np.block(shards)) == bits(fill(init, Key(3, "w"), shape))


@given(
    data=st.data(),
    key=keys,
    shape=st.lists(st.integers(1, 7), min_size=2, max_size=4).map(tuple),
    init=drawn,
)
@QUICK
def test_a_stack_is_made_of_its_slices(
    data: st.DataObject, key: Key, shape: tuple[int, ...], init: lp.init.Init
) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    whole = fill(init, key, shape, batch_axes=[axis])
    inner = list(shape)
    del inner[axis]
    single = [fill(init, Key(key.seed, *key.path, at), inner) for at in range(shape[axis])]
    assert bits(whole) == bits(np.stack(single, axis if axis >= 0 else axis + len(shape)))
    box = data.draw(boxes(shape))
    assert bits(fill(init, key, shape, box=box, batch_axes=[axis])) == bits(whole[box])


def test_two_batch_axes_are_two_parts_of_the_path() -> None:
    whole = fill(lp.init.normal(), Key(1, "w"), (2, 5, 3), batch_axes=(2, 0))
    for i in range(2):
        for j in range(3):
            one = fill(lp.init.normal(), Key(1, "w", i, j), 5)
            assert bits(whole[i, :, j]) == bits(one)


# ---- threads -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "init",
    [
        *(lp.init.normal(), lp.init.uniform(), lp.init.trunc_normal()),
        *(lp.init.orthogonal(), lp.init.sparse(0.1)),
    ],
    ids=lambda init: init.name,
)
def test_any_number_of_threads_gives_the_same_bits(init: lp.init.Init) -> None:
    """LaurentMazare/tch-rs#263, pytorch/pytorch#3794, #4777, #53983: large enough for several
    chunks.
    """
    one = fill(init, Key(9, "w"), (301, 467), threads=1)
    for threads in range(2, 17):
        assert bits(fill(init, Key(9, "w"), (301, 467), threads=threads)) == bits(one)
    assert bits(fill(init, Key(9, "w"), (301, 467))) == bits(one)


# ---- what comes back -----------------------------------------------------------------------------


@pytest.mark.parametrize("box", [np.s_[2:], np.s_[:-1], np.s_[1:100], np.s_[7:3], np.s_[-4:-2]])
def test_slices_mean_what_they_mean_in_numpy(box: slice) -> None:
    whole = fill(lp.init.normal(), Key(1), 5)
    assert bits(fill(lp.init.normal(), Key(1), 5, box=box)) == bits(whole[box])


def test_a_shape_that_is_too_large_for_this_machine_is_a_memory_error() -> None:
    with pytest.raises(MemoryError, match="no memory"):
        fill(lp.init.normal(), Key(1), 2**60)


def test_what_is_filled_is_read_only() -> None:
    value = fill(lp.init.normal(), Key(1), (2, 3))
    assert not value.flags.writeable
    assert value.flags.c_contiguous
    assert fill(lp.init.normal(), Key(1), ()).shape == ()
