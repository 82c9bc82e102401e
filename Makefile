# make demo      prepares text, trains, is killed, resumes, and proves that the data were exact
# make test      lint, types, tests
# make test-all  the same, and the tests that take long: whole products of cases, kills by the dozen
#
# Each makes its own virtual environment in .venv and touches nothing else. Where a working torch is installed
# (a training container), use it instead of downloading another:
#
#     make demo VENV_ARGS=--system-site-packages
#
# Tests run two files at a time; `make test PARALLEL=` runs them one by one.

PYTHON ?= python3
VENV ?= .venv
VENV_ARGS ?=
PYTEST_ARGS ?=
PARALLEL ?= --numprocesses 2 --dist loadfile --no-loadscope-reorder
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint $(VENV)/constraints.txt

.PHONY: demo test test-all exhaustive lint types wheel clean

demo: $(VENV)/.runtime
	$(BIN)/python examples/resume_demo.py

test: lint types
	$(BIN)/pytest $(PARALLEL) $(PYTEST_ARGS)

test-all exhaustive: lint types
	$(BIN)/pytest $(PARALLEL) -m "exhaustive or not exhaustive" $(PYTEST_ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/.dev
	$(BIN)/mypy

wheel: $(VENV)/.dev
	$(BIN)/python -m build --wheel

clean:
	rm -rf $(VENV) build dist *.egg-info

$(VENV)/constraints.txt: constraints.txt .ci/constraints.py
	$(PYTHON) -m venv $(VENV_ARGS) $(VENV)
	$(BIN)/python .ci/constraints.py constraints.txt > $@.tmp
	mv $@.tmp $@

$(VENV)/.runtime: $(VENV)/constraints.txt pyproject.toml
	$(PIP) --editable .
	touch $@

$(VENV)/.dev: $(VENV)/constraints.txt pyproject.toml
	$(PIP) --editable '.[dev]'
	touch $@ $(VENV)/.runtime
