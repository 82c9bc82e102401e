# make demo          prepares text, trains, is killed, resumes, and proves that the data were exact
# make test          lint, types, tests
# make test-all      the same, and the tests that take long: whole products of cases, kills by the dozen
# make test-formats  token files of other tools, written and read by those tools
# make test-trainers real trainers, killed and resumed
#
# Each makes its own virtual environment in .venv (test-formats in .venv-formats, test-trainers in .venv-trainers). Where a
# working torch is installed (a training container), use it instead of downloading another:
#
#     make demo VENV_ARGS=--system-site-packages
#
# Tests run two files at a time; `make test PARALLEL=` runs them one by one.

PYTHON ?= python3
VENV ?= .venv
VENV_ARGS ?=
PYTEST_ARGS ?=
PARALLEL ?= --numprocesses 2 --dist loadfile --no-loadscope-reorder
FORMATS_VENV := .venv-formats
TRAINERS_VENV := .venv-trainers
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint $(VENV)/constraints.txt

.PHONY: demo test test-all test-formats test-trainers exhaustive lint types wheel clean

demo: $(VENV)/.runtime
	$(BIN)/python examples/resume_demo.py

test: lint types
	$(BIN)/pytest $(PARALLEL) $(PYTEST_ARGS)

test-all exhaustive: lint types
	$(BIN)/pytest $(PARALLEL) -m "not trainers" $(PYTEST_ARGS)

test-formats: $(FORMATS_VENV)/.formats
	FORMATS_ORACLES=required $(FORMATS_VENV)/bin/pytest tests/formats tests/exchange $(PYTEST_ARGS)

test-trainers: $(TRAINERS_VENV)/.trainers
	$(TRAINERS_VENV)/bin/pytest $(PARALLEL) -m "trainers or not exhaustive" tests/integrations $(PYTEST_ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/.dev
	$(BIN)/mypy

wheel: $(VENV)/.dev
	$(BIN)/python -m build --wheel

clean:
	rm -rf $(VENV) $(FORMATS_VENV) $(TRAINERS_VENV) build dist *.egg-info

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

# The tools pin old numpy, torchvision and more that token files do not need: they come without what they ask for,
# and what they do need is in the list.
$(FORMATS_VENV)/.formats: tests/formats/constraints.txt constraints.txt pyproject.toml .ci/constraints.py
	$(MAKE) VENV=$(FORMATS_VENV) $(FORMATS_VENV)/.dev
	$(FORMATS_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps \
		--requirement tests/formats/constraints.txt
	touch $@

$(TRAINERS_VENV)/.trainers: tests/integrations/constraints.txt constraints.txt pyproject.toml .ci/constraints.py
	$(MAKE) VENV=$(TRAINERS_VENV) $(TRAINERS_VENV)/.dev
	$(TRAINERS_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps \
		--requirement tests/integrations/constraints.txt
	touch $@
