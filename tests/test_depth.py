"""Depth is a loop, not a stack."""

from __future__ import annotations

import copy
import pickle

import numpy as np

import lazyparam as lp


def deep(depth: int) -> lp.Param:
    p = lp.Param(1, lp.init.zeros(), dtype="float64")
    for _ in range(depth):
        p = p.init_mapper(increment)
    return p


def increment(array: np.ndarray) -> np.ndarray:
    return array + 1


def test_a_hundred_thousand_mappers_read_and_drop() -> None:
    """B59: and dropping it unread is no trouble either."""
    p = deep(100_000)
    assert repr(p)
    assert p.val().tolist() == [100_000]
    unread = deep(100_000)
    del unread


def test_deep_chains_copy_and_pickle() -> None:
    p = deep(20_000)
    q = copy.deepcopy(p)
    r = pickle.loads(pickle.dumps(p))
    del p
    assert q.val().tolist() == r.val().tolist() == [20_000]


def test_a_deep_chain_whose_every_handle_lives_pickles() -> None:
    handles = [lp.Param(1, lp.init.zeros(), dtype="float64")]
    for _ in range(3_000):
        handles.append(handles[-1].init_mapper(increment))
    last = pickle.loads(pickle.dumps(handles[-1]))
    assert last.val().tolist() == [3_000]
    both = pickle.loads(pickle.dumps([handles[-1], handles[1000]]))
    assert both[0].val().tolist() == [3_000]
    assert both[1].is_initialized
    assert not handles[0].is_initialized


def test_a_deep_chain_whose_every_handle_lives_reads_from_the_top() -> None:
    handles = [lp.Param(1, lp.init.zeros(), dtype="float64")]
    for _ in range(5_000):
        handles.append(handles[-1].init_mapper(increment))
    assert handles[-1].val().tolist() == [5_000]
    assert all(handle.is_initialized for handle in handles)
    assert handles[17].val().tolist() == [17]
