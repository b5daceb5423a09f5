"""Import lazyparam in fresh processes that have NumPy already: seconds beyond that import."""

from __future__ import annotations

import json
import subprocess
import sys
from statistics import median

from .harness import Scale, WrongResult, take_turns
from .table import Row, duration, over_rounds, ratios, times

MEASURE = """
import json, sys, time
start = time.perf_counter()
import numpy
numpy_seconds = time.perf_counter() - start
start = time.perf_counter()
import lazyparam
seconds = time.perf_counter() - start
foreign = {"torch", "jax", "jaxlib", "cupy", "ml_dtypes"} & set(sys.modules)
print(json.dumps([seconds, numpy_seconds, sorted(foreign)]))
"""


def measure() -> tuple[float, float]:
    """Seconds of lazyparam and of NumPy, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE], check=True, capture_output=True, text=True
    )
    seconds, numpy_seconds, foreign = json.loads(done.stdout)
    if foreign:
        raise WrongResult(f"importing lazyparam imported {foreign}")
    return seconds, numpy_seconds


def run(scale: Scale) -> list[Row]:
    measured = take_turns(scale.pick(21, 3), {"import": measure})["import"]
    ours = [seconds for seconds, _ in measured]
    numpy = [seconds for _, seconds in measured]
    shares = ratios(numpy, ours)
    return [
        Row(
            "import lazyparam, after NumPy",
            over_rounds(ours, duration),
            f"import numpy: {over_rounds(numpy, duration)}",
            f"{over_rounds(shares, times)} the time",
            "≤ 0.15 s",
            median(ours) <= 0.15,
        )
    ]
