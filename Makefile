# Candela. `make demo` shows everything; `make check` is what a commit must pass; `make test` is what CI runs.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
CACHE  ?= .cache
TESTS  ?= tests

# One stamp a set of requirements: pip runs again only when pyproject.toml changes.
SERVING := $(VENV)/.serving
DEV     := $(VENV)/.dev

.PHONY: demo test check check-answers bench load clean help

help:
	@echo "make demo    start everything, compile a real model, ask it one question (CHECK=1: exit 0/1 after it)"
	@echo "make test    all tests (installs torch and transformers as oracles)"
	@echo "make check   format, lint, types, import rules, unit tests"
	@echo "make check-answers   a real model's logits and answers beside transformers, alone and in a batch"
	@echo "make bench   speed beside transformers, as a table"
	@echo "make load    a bounded load test that reconciles with the ledger"
	@echo "make clean   remove what the targets above made, but not .venv"

demo: $(SERVING)
	$(BIN)/python -m candela.demo $(if $(filter 1,$(CHECK)),--check) $(if $(PORT),--port $(PORT)) --cache $(CACHE)/demo

test: $(DEV)
ifeq ($(TESTS),tests)
	$(BIN)/python -m pytest tests/unit tests/backend -n auto
	$(BIN)/python -m pytest tests/service -n 2 --dist loadfile
	$(BIN)/python -m pytest tests/e2e
else
	$(BIN)/python -m pytest $(TESTS)
endif

check: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/unit -n auto

check-answers: $(DEV)
	$(BIN)/python -m loadtest.checks.main --cache $(CACHE)

bench: $(DEV)
	$(BIN)/python -m loadtest.bench.main --cache $(CACHE)

load: $(DEV)
	$(BIN)/python -m loadtest.main

clean:
	rm -rf build dist *.egg-info demo-data $(CACHE) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

# The demo needs neither torch nor transformers nor triton.
$(SERVING): pyproject.toml | $(BIN)/python
	$(PIP) install -q -e .
	@touch $@

# torch is named on its own, exactly, so that the same build is found wherever this runs.
$(DEV): pyproject.toml | $(BIN)/python
	$(PIP) install -q torch==2.13.0
	$(PIP) install -q -e '.[dev]'
	@touch $@ $(SERVING)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
