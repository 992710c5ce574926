# Two commands do everything on a machine with Python 3.11 or 3.12 and gcc:
#   make demo    installs into .venv, tunes ResNet-18 on this CPU in three minutes, compares with torch
#   make test    lints, type-checks and tests; `make test-all` adds the slow checks,
#                `make test-null` is the part without TVM, in under a minute

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTEST := $(BIN)/python -m pytest -q --durations=10
# Tests with TVM time programs and must not disturb each other; the others run side by side.
PYTEST_PAIR := $(PYTEST) -n 2 --dist loadfile
# These compile with TVM, but time nothing.
UNTIMED := tests/lowering tests/space tests/workloads

.PHONY: demo test test-null test-all test-chaos lint size clean

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

size: $(READY)
	$(BIN)/python tools/size.py

test: lint
	$(PYTEST_PAIR) -m "null and not slow"
	$(PYTEST_PAIR) -m "not null and not slow and not gpu" $(UNTIMED)
	$(PYTEST) -m "not null and not slow and not gpu" $(UNTIMED:%=--ignore=%)

test-null: $(READY)
	$(PYTEST_PAIR) -m "null and not slow"

# Ray is 80 MB and only its own slow tests need it; so with what exports networks.
$(VENV)/.ready-all: $(READY)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev,ray,wild]'
	touch $@

test-all: lint $(VENV)/.ready-all
	$(PYTEST)
	$(MAKE) test-chaos

# Ten minutes: 50 kills, 10,000 damaged files, two writers, full disks, clocks that jump.
test-chaos: $(READY)
	$(BIN)/python tools/chaos

clean:
	rm -rf $(VENV) build dist runs .pytest_cache .mypy_cache .ruff_cache
