# Every target sets itself up: it needs only Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export OMP_NUM_THREADS ?= 1

.PHONY: help install demo test lint format bench docs clean

help:
	@echo "make demo     train NNAC on CartPole, draw the learning curve, film the agent"
	@echo "make test     run the tests"
	@echo "make install  only create .venv and install"
	@echo "make lint     ruff and mypy        make format  ruff format and fixes"
	@echo "make bench    most benchmarks (several minutes)"
	@echo "make docs     the documentation as a site, in site/"

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("nearl needs Python 3.11 or newer, found " + sys.version.split()[0] + "; set PYTHON=..." if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e ".[plots,mujoco,box2d,baselines,theory,studies,dev]"
	@touch $@

install: $(STAMP)

demo: $(STAMP)
	$(BIN)/nearl demo --out runs/demo

test: $(STAMP)
	$(BIN)/python -m pytest -n 2

lint: $(STAMP)
	$(BIN)/ruff check src tests tools examples
	$(BIN)/ruff format --check src tests tools examples
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix src tests tools examples
	$(BIN)/ruff format src tests tools examples

bench: $(STAMP)
	$(BIN)/nearl bench search
	$(BIN)/nearl bench critic
	$(BIN)/nearl bench nnac
	$(BIN)/nearl bench memory
	$(BIN)/nearl bench train
	$(BIN)/nearl bench population
	$(BIN)/nearl bench simulations
	$(BIN)/nearl bench sharing

docs: $(STAMP)
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e ".[docs]"
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
