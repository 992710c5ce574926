# Two commands do everything on a machine with Python 3.11 or 3.12 and gcc:
#   make demo    installs into .venv, tunes ResNet-18 on this CPU in three minutes, compares with torch
#   make test    lints, type-checks and tests; `make test-all` adds the slow checks

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# xdist is not used: tests time programs and must not disturb each other.
PYTEST := $(BIN)/python -m pytest -q

.PHONY: demo test test-all lint clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	# torch first and pinned: any looser request pulls gigabytes of CUDA packages.
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	touch $@

demo: $(READY)
	$(BIN)/tensorese demo

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(PYTEST) -m "not slow and not gpu"

# Ray is 80 MB and only its own slow tests need it; so with what exports ONNX files.
$(VENV)/.ready-all: $(READY)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev,ray,wild]'
	touch $@

test-all: lint $(VENV)/.ready-all
	$(PYTEST)

clean:
	rm -rf $(VENV) build dist runs .pytest_cache .mypy_cache .ruff_cache
