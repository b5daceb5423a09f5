"""The main job, on a real checkpoint: embeddings agree with an independent implementation."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from examples import minilm

import lazyparam as lp
from tests.helpers import race

GOLDEN = json.loads((Path(__file__).parent / "data" / "minilm_golden.json").read_text())
FILE = minilm.model_folder() / "model.safetensors"


DEVICES = ["cpu"] + [f"{library}:cpu" for library in ("torch", "jax") if find_spec(library)]


@pytest.fixture(params=[(device, mode) for device in DEVICES for mode in ("copy", "view")])
def model(request: pytest.FixtureRequest) -> minilm.Encoder:
    device, mode = request.param
    declared = minilm.declare(minilm.model_folder())
    return declared.load_file(FILE, device=device, dtype="cast", mode=mode)


@pytest.mark.thread_unsafe(reason="eight threads of its own, against the clock")
def test_eight_threads_that_encode_at_once_agree_with_the_golden_embeddings(
    model: minilm.Encoder, eager_switching: None
) -> None:
    """The empty and the truncated text included; no initialiser runs."""
    words = minilm.tokenizer(minilm.model_folder())
    cases = GOLDEN["cases"]
    assert len(cases) == 6

    def encode_all(first: int) -> list[np.ndarray]:
        rotated = cases[first:] + cases[:first]
        found = {case["text"]: minilm.encode(model, words, case["text"]) for case in rotated}
        return [found[case["text"]] for case in cases]

    for encoded in race([lambda at=at: encode_all(at % 6) for at in range(8)], seconds=110):
        assert isinstance(encoded, list), encoded
        for case, vector in zip(cases, encoded, strict=True):
            np.testing.assert_allclose(vector, case["embedding"], atol=1e-5, rtol=0)
    lazy = [path for path, param in model.named_parameters() if not param.is_initialized]
    assert lazy == ["pooler.dense.weight", "pooler.dense.bias"]


def test_the_tokens_are_those_of_the_golden_cases() -> None:
    words = minilm.tokenizer(minilm.model_folder())
    for case in GOLDEN["cases"]:
        assert words.encode(case["text"]).ids == case["token_ids"]


def test_the_summary_of_the_declared_model_has_nothing_in_being() -> None:
    summary = lp.summary(minilm.declare(minilm.model_folder()))
    assert len(summary.rows) == 104
    assert summary.nbytes == 90_854_912
    assert summary.nbytes_in_being == 0


def test_the_example_runs_as_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    minilm.main(["a cat", "a kitten"])
    out = capsys.readouterr().out
    assert "0 B in being" in out
    assert "104 loaded (86.6 MiB)" in out
    assert "no initialiser ran" in out
