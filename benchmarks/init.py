"""Native initialisers: time for each element, in turns with torch, NumPy, JAX and the write limit.

Reports of slow initialisation elsewhere, and the rows that show how it is here:

- vllm-project/vllm#54712, #54958, temporaries of the full size: memory beyond the output.
- pytorch/pytorch#182116, a ``trunc_normal_`` that became 3.4 times as slow: ``trunc_normal`` beside
  torch's and beside our ``normal``.
- pytorch/pytorch#22414, #21731, one lock for the whole of a kernel: two threads beside one.
- NVIDIA/FasterTransformer#583, 465 of 496 seconds in ``normal_``: ``normal`` beside torch's. That
  weights which a checkpoint has are not drawn at all is in ``tests/test_init_scenarios.py``.
- pytorch/pytorch#6021, #6899, a loop over the columns in ``sparse_``: ``sparse`` beside torch's.
- numpy/numpy#27483, #11957, huggingface/candle#2149, pages that are touched for the first time:
  fresh and warm memory, of peers and of the limit.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np

import lazyparam as lp

from .harness import MIB, Scale, WrongResult, apart, cost, make_room, take_turns
from .table import Row, times

Make: TypeAlias = Callable[[], Any]
Case: TypeAlias = tuple[int | str, int]
"""A peer's number or the name of what it is, and with how many threads."""

KEY = lp.init.Key(42, "layers", 0, "weight")
FAN = 1024
BOUND = math.sqrt(6 / FAN)
"""Of ``kaiming_uniform``."""
TRUNCATED = 0.8796256610342398
"""Standard deviation of a normal one that is cut at ±2."""


@dataclass(frozen=True)
class Peer:
    """Another way to the same values, and how many times as fast ours should be."""

    name: str
    make: Make
    goals: tuple[float | None, float | None] = (None, None)
    """With one thread, with two."""
    beside: tuple[int, ...] = (1, 2)
    """Beside how many threads of ours it is measured."""


@dataclass(frozen=True)
class Law:
    """One initialiser, what it should give, and its peers."""

    name: str
    init: lp.init.Init
    shape: tuple[int, ...]
    dtype: str = "float32"
    std: float = 0.0
    most: float = math.inf
    limits: tuple[float | None, float | None] = (None, None)
    """Which part of the speed of writing alone it should have."""
    peers: list[Peer] = field(default_factory=list)

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def room(self) -> int:
        """Bytes of the largest array that is made on the way to this law, by anybody."""
        return self.count * (8 if self.dtype == "float64" else 4)

    def ours(self, threads: int) -> Any:
        return lp.init.fill(self.init, KEY, self.shape, self.dtype, threads=threads)

    def check(self) -> None:
        """The same bits for every number of threads, and the moments of the law."""
        one = self.ours(1)
        if not np.array_equal(one.view("u1"), self.ours(2).view("u1")):
            raise WrongResult(f"{self.name}: two threads give other bits")
        if not self.std:
            return
        flat = one.reshape(-1).astype(np.float64)
        slack = 6 * self.std / math.sqrt(flat.size)
        if abs(flat.mean()) > slack or abs(flat.std() - self.std) > slack + 2e-3 * self.std:
            raise WrongResult(f"{self.name}: mean {flat.mean()}, deviation {flat.std()}")
        if abs(flat).max() > self.most:
            raise WrongResult(f"{self.name}: {abs(flat).max()} is too far out")


def laws(count: int, few: int, width: int) -> list[Law]:
    """What is measured; `few` where a peer is slow, `width` of the orthogonal matrix."""
    rows = (count // FAN, FAN)
    few_rows = (few // FAN, FAN)
    return [
        Law(
            "kaiming_uniform",
            lp.init.kaiming_uniform(),
            rows,
            std=BOUND / math.sqrt(3),
            most=BOUND * (1 + 1e-6),
            limits=(0.4, 0.5),
        ),
        Law("normal", lp.init.normal(), rows, std=1, most=6.56, limits=(0.2, 0.28)),
        Law("normal bfloat16", lp.init.normal(), rows, "bfloat16", std=1, most=6.57),
        Law("normal float64", lp.init.normal(), rows, "float64", std=1, most=9.35),
        Law("trunc_normal ±2", lp.init.trunc_normal(), rows, std=TRUNCATED, most=2),
        Law(
            "trunc_normal ±2 float64",
            lp.init.trunc_normal(),
            rows,
            "float64",
            std=TRUNCATED,
            most=2,
        ),
        Law("constant", lp.init.constant(0.5), rows, limits=(0.9, 0.9)),
        Law("zeros", lp.init.zeros(), rows),
        Law("sparse 0.9", lp.init.sparse(0.9), few_rows),
        Law(f"orthogonal {width}", lp.init.orthogonal(), (width, width)),
    ]


def numpy_peers(law: Law, warm: Any) -> list[Peer]:
    """NumPy's fastest generator, into fresh memory and into `warm`."""
    chance = np.random.Generator(np.random.PCG64(1))
    count = law.count
    out = warm[:count]
    if law.name == "kaiming_uniform":
        goals = (2.7, None)
        return [
            Peer("numpy random f32, unscaled", lambda: chance.random(count, np.float32), goals),
            Peer("the same, warm memory", lambda: chance.random(out=out, dtype=np.float32)),
        ]
    if law.name == "normal":
        return [
            Peer(
                "numpy standard_normal f32",
                lambda: chance.standard_normal(count, np.float32),
                (5, None),
            ),
            Peer(
                "the same, warm memory",
                lambda: chance.standard_normal(out=out, dtype=np.float32),
            ),
        ]
    if law.name == "zeros":
        return [Peer("np.zeros; neither touches the pages", lambda: np.zeros(count, np.float32))]
    return []


def torch_peers(law: Law) -> list[Peer]:
    """PyTorch on the CPU, into fresh memory and into warm."""
    torch = import_module("torch")
    init = torch.nn.init
    shape = law.shape
    dtype = getattr(torch, law.dtype)
    warm = torch.zeros(shape, dtype=dtype)
    warm32 = torch.zeros(shape) if law.dtype == "bfloat16" else warm
    again = "the same, warm memory"

    def both(
        name: str, fill: Callable[[Any], Any], goals: tuple[float | None, float | None]
    ) -> list[Peer]:
        return [
            Peer(f"torch {name}", lambda: fill(torch.empty(shape, dtype=dtype)), goals),
            Peer(again, lambda: fill(warm)),
        ]

    match law.name.partition(" ")[0], law.dtype:
        case "kaiming_uniform", _:
            return both("uniform_", lambda x: x.uniform_(-BOUND, BOUND), (3.5, 6)) + both(
                "kaiming_uniform_",
                lambda x: init.kaiming_uniform_(x, nonlinearity="relu"),
                (3.5, 6),
            )
        case "normal", "float32":
            return both("normal_", lambda x: x.normal_(), (2, 3.5))
        case "normal", "float64":
            return both("normal_", lambda x: x.normal_(), (None, None))
        case "normal", _:
            return [
                *both("normal_", lambda x: x.normal_(), (2.5, 4)),
                Peer(
                    "torch normal_ f32, .to(bfloat16)",
                    lambda: torch.empty(shape).normal_().to(dtype),
                    (4.5, None),
                ),
                Peer(again, lambda: warm32.normal_().to(dtype)),
            ]
        case "trunc_normal", "float32":
            return both("trunc_normal_", lambda x: init.trunc_normal_(x), (25, None))
        case "trunc_normal", _:
            return both("trunc_normal_", lambda x: init.trunc_normal_(x), (None, None))
        case "constant", _:
            return both("fill_", lambda x: x.fill_(0.5), (None, None))
        case "sparse", _:
            return both("sparse_", lambda x: init.sparse_(x, 0.9), (None, None))
        case "orthogonal", _:
            return both("orthogonal_", lambda x: init.orthogonal_(x), (1.5, None))[:1]
        case _:
            return []


def jax_peers(law: Law) -> list[Peer]:
    """JAX on the CPU with its default generator, compiled.

    It uses the threads it likes, so beside one thread of ours it has one processor for them all.
    """
    if law.name != "normal":
        return []
    jax = import_module("jax")
    compiled = jax.jit(lambda key: jax.random.normal(key, law.shape))
    key = jax.random.key(1)

    def draw() -> Any:
        return compiled(key).block_until_ready()

    draw()
    return [
        Peer(
            "jax.random.normal, on one processor", partial(on_one_processor, draw), (15, None), (1,)
        ),
        Peer("jax.random.normal, on the threads it likes", draw, beside=(2,)),
    ]


def on_one_processor(make: Make) -> Any:
    """What `make` gives, while all threads of this process share one processor."""
    threads = [int(name) for name in os.listdir("/proc/self/task")]
    allowed = os.sched_getaffinity(0)
    for thread in threads:
        os.sched_setaffinity(thread, {min(allowed)})
    try:
        return make()
    finally:
        for thread in threads:
            os.sched_setaffinity(thread, allowed)


def written(out: Any, threads: int) -> Any:
    """The limit: one number over and over, each thread its part."""
    parts = np.array_split(out, threads)
    helpers = [threading.Thread(target=part.fill, args=(0.5,)) for part in parts[1:]]
    for helper in helpers:
        helper.start()
    parts[0].fill(0.5)
    for helper in helpers:
        helper.join()
    return out


def written_fresh(count: int, threads: int) -> Any:
    return written(np.empty(count, np.float32), threads)


def best(
    rounds: int, cases: dict[Case, tuple[Make, int]], set_threads: Callable[[int], object]
) -> dict[Case, float]:
    """Seconds that every case took in its best round. What it gives is freed after the clock."""

    def timed(case: Case) -> float:
        make, room = cases[case]
        make_room(room)
        set_threads(case[1])
        start = time.perf_counter()
        made = make()
        seconds = time.perf_counter() - start
        del made
        return seconds

    measured = take_turns(rounds, {case: partial(timed, case) for case in cases})
    return {case: min(seconds) for case, seconds in measured.items()}


def measure(quick: bool) -> list[Row]:
    """All times, in one process."""
    torch = import_module("torch") if find_spec("torch") else None
    has_jax = find_spec("jax") is not None
    count = 1 << (20 if quick else 24)
    warm = np.zeros(count, np.float32)
    rows = []
    normal: dict[tuple[str, int], float] = {}
    for law in laws(count, 1 << (18 if quick else 22), 256 if quick else 2048):
        law.check()
        peers = numpy_peers(law, warm)
        peers += torch_peers(law) if torch else []
        peers += jax_peers(law) if has_jax else []
        room = law.room
        cases: dict[Case, tuple[Make, int]] = {}
        for threads in (1, 2):
            cases["ours", threads] = (partial(law.ours, threads), room)
            if any(law.limits):
                cases["limit", threads] = (partial(written_fresh, law.count, threads), room)
                cases["warm limit", threads] = (partial(written, warm[: law.count], threads), 0)
            for at, peer in enumerate(peers):
                if threads in peer.beside:
                    cases[at, threads] = (peer.make, room)
        set_threads = torch.set_num_threads if torch else lambda _: None
        spent = best(3 if quick else 11 if law.std else 7, cases, set_threads)
        for threads in (1, 2):
            each = {
                name: seconds / law.count for (name, on), seconds in spent.items() if on == threads
            }
            told = {name: ns(seconds) for name, seconds in each.items()}
            what = f"{law.name}, {threads} thread{'s' * (threads > 1)}"
            for at, peer in enumerate(peers):
                if at not in each:
                    continue
                ratio = each[at] / each["ours"]
                goal = peer.goals[threads - 1]
                rows.append(
                    Row(
                        what,
                        told["ours"],
                        f"{peer.name}: {told[at]}",
                        f"{times(ratio)} the speed",
                        f"≥ {goal:g}×" if goal else "",
                        ratio >= goal if goal else None,
                    )
                )
            for name, limit in (("limit", "fresh"), ("warm limit", "warm")):
                if name in each:
                    share = each[name] / each["ours"]
                    goal = law.limits[threads - 1] if name == "limit" else None
                    rows.append(
                        Row(
                            what,
                            told["ours"],
                            f"ndarray.fill, {limit} memory: {told[name]}",
                            f"{share:.0%} of its speed",
                            f"≥ {goal:.0%}" if goal else "",
                            share >= goal if goal else None,
                        )
                    )
            if law.name.startswith("normal"):
                normal[law.dtype, threads] = each["ours"]
            if law.name.startswith("trunc_normal"):
                plain = normal[law.dtype, threads]
                ratio = each["ours"] / plain
                has_goal = threads == 1 and law.dtype == "float32"
                rows.append(
                    Row(
                        what,
                        told["ours"],
                        f"our normal: {ns(plain)}",
                        f"{times(ratio)} the time",
                        "≤ 2.3×" if has_goal else "",
                        ratio <= 2.3 if has_goal else None,
                    )
                )
            if threads == 1:
                alone = each["ours"]
            elif law.name != "zeros":
                ratio = alone / each["ours"]
                # A constant is bound by memory, not by arithmetic; for sparse there is no goal.
                goal = None if law.name in ("constant", "sparse 0.9") else 1.7
                rows.append(
                    Row(
                        what,
                        told["ours"],
                        f"1 thread: {ns(alone)}",
                        f"{times(ratio)} the speed",
                        "≥ 1.7×" if goal else "",
                        ratio >= goal if goal else None,
                    )
                )
    return rows


def extra(quick: bool) -> int:
    """The most bytes by which a fill's peak of memory exceeds its output, over laws and dtypes."""
    shape = (1 << (11 if quick else 15), FAN)
    most = 0
    for dtype in ("float32", "float64", "bfloat16", "float16"):
        for init in (lp.init.normal(), lp.init.trunc_normal(), lp.init.kaiming_uniform()):
            draw = partial(lp.init.fill, init, KEY, shape, dtype, threads=2)
            draw()  # what is needed once
            made, spent = cost(draw)
            most = max(most, spent.peak - made.nbytes)
    return most


def ns(seconds: float) -> str:
    """For one element."""
    return f"{seconds * 1e9:.3g} ns"


def run(scale: Scale) -> list[Row]:
    rows = apart(measure, scale.quick)
    beyond = apart(extra, scale.quick)
    rows.append(
        Row(
            "peak memory of a fill, 2 threads, beyond its output",
            f"{beyond / 1024:.0f} KiB",
            "any law and dtype, 64 to 256 MiB",
            goal="≤ 1 MiB",
            ok=beyond <= MIB,
        )
    )
    for peer in ("torch", "jax"):
        if not find_spec(peer):
            rows.append(Row(f"the same against {peer}", "", f"{peer} not installed"))
    return rows
