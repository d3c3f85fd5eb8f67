# Every task of this repository. `make demo` and `make test` need Python 3.11+, a C++20 compiler and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
NATIVE := $(wildcard native/*/*.hpp native/*/*.cpp) CMakeLists.txt pyproject.toml
SOURCES := $(shell find src -name '*.py' -o -name '*.properties' -o -name '*.pyi')
QUESTIONS := log_ipc ring frames sync pipes record spark_scan
MODE := short
EVIDENCE_SEED := 0
SEED := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test check fix native stress crash bench docs stubs evidence sim ci clean

help: ## Show what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(STAMP): $(NATIVE) $(SOURCES)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip --version | grep -qE 'pip (2[4-9]|[3-9])' || $(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q '.[spark,demo,dev]'
	@touch $(STAMP)

setup: $(STAMP) ## Build the library and put everything into .venv

demo: $(STAMP) ## Run the main job end to end: real telemetry, recording, Spark, report
	$(BIN)/penstock demo

test: $(STAMP) ## Run the tests
	$(BIN)/python -m pytest

check: $(STAMP) ## Lint, types, layers, format, stubs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(wildcard native/*/*.hpp native/*/*.cpp)
	$(BIN)/python tools/stubs.py --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

fix: $(STAMP) ## Format, and mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(wildcard native/*/*.hpp native/*/*.cpp)

stubs: $(STAMP) ## Write the compiled module's type stub anew
	$(BIN)/python tools/stubs.py

native: $(STAMP) ## Native tests: plain, ThreadSanitizer, AddressSanitizer and UBSan
	$(BIN)/python -m evidence sanitizer

stress: $(STAMP) ## The long runs of native stress and of the Python campaigns
	$(BIN)/python -m evidence sanitizer --mode long
	PENSTOCK_LONG=1 $(BIN)/python -m pytest tests/stress tests/crash

crash: $(STAMP) ## Kill campaigns, long
	PENSTOCK_LONG=1 $(BIN)/python -m pytest tests/crash

bench: $(STAMP) ## Run every benchmark with rivals; results in out/bench
	$(BIN)/python -m pip install -q '.[bench]'
	for question in $(QUESTIONS); do $(BIN)/python -m bench $$question --json out/bench/$$question.json || exit 1; done

docs: ## Build the documentation into docs/_build
	@$(MAKE) -s $(STAMP)
	$(BIN)/python -m pip install -q '.[docs]'
	$(BIN)/sphinx-build -q -W -b html docs docs/_build

evidence: $(STAMP) ## The evidence rooms: model checker, mutants, kills, hostile bytes, faults (MODE=long for all)
	$(BIN)/python -m evidence --mode $(MODE) --seed $(EVIDENCE_SEED) --json out/evidence.json

sim: $(STAMP) ## One life in the simulated world: make sim SEED=n
	$(BIN)/python tests/sim/recording.py --seed $(SEED)

ci: $(STAMP) ## What CI runs
	$(MAKE) check
	$(MAKE) evidence EVIDENCE_SEED=1
	$(MAKE) docs
	for question in $(QUESTIONS); do $(BIN)/python -m bench $$question --quick || exit 1; done
	$(MAKE) test

clean: ## Remove what was built
	rm -rf $(VENV) build out docs/_build
