# Every target that runs code depends on the stamp below, so any of them works as the first command
# on a fresh machine and costs nothing when the environment is up to date.

SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS   += --no-print-directory

# Tests start many programs. Without stored bytecode each of them would compile the project again.
unexport PYTHONDONTWRITEBYTECODE

VENV  := .venv
BIN   := $(VENV)/bin
PY    := $(BIN)/python
CACHE := .cache
STAMP := $(VENV)/.complete
# The demo lake with its ledger and its Dagster instance, and the port of Dagster's UI.
DATA  := data
PORT  := 3000

# PYTHON=/path/to/python3.12 chooses the interpreter; JAVA_OPTS is passed on to the jar download (proxy, trust store).

.PHONY: help
help:  ## show this list
	@echo "iceberg_maint: keeps Apache Iceberg tables healthy. Two commands to begin with: make run, make test."
	@echo
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMP)  ## make .venv from the hashed locks, find Java (or bring one), fetch the jars

$(STAMP): requirements/setup.sh requirements/build.txt requirements/dev.txt requirements/java.txt pyproject.toml iceberg_maint/engines/spark/session/jars.lock.json
	@bash requirements/setup.sh "$(VENV)" "$(CACHE)"
	@touch $@

# Where the demo lake is: local, or s3 for a local S3 server that ends with the demo.
STORE := local

.PHONY: run
run: setup  ## build the demo lake with real writers, heal it, show before and after (STORE=s3)
	$(BIN)/iceberg-maint demo --data $(DATA) --fresh --store $(STORE)

.PHONY: dev
dev: setup  ## open Dagster on the demo lake while a job keeps making it sick (PORT=3000)
	$(BIN)/iceberg-maint demo --data $(DATA) --build-only
	DAGSTER_HOME="$(abspath $(DATA))/dagster_home" \
	ICEBERG_MAINT_CONFIG="$(abspath $(DATA))/iceberg_maint.yaml" \
	ICEBERG_MAINT_DAGSTER_URL="http://127.0.0.1:$(PORT)" \
	$(BIN)/dagster dev -w workspace.yaml -w iceberg_maint/demo/workspace.yaml -h 127.0.0.1 -p $(PORT)

# Suites, benches and demos are in iceberg_maint_tests/nightly/suites.toml. Without a name they are listed.
NAMED := $(PY) -m iceberg_maint_tests.nightly.named

.PHONY: demo
demo: setup  ## list the demos, or run one (DEMO=race)
	@$(NAMED) demo $(MAKEOVERRIDES)

.PHONY: bench
bench: setup  ## list the benches, or run one; it fails over its target (BENCH=columnar, ARGS="small large")
	@$(NAMED) bench $(MAKEOVERRIDES)

.PHONY: qualify
qualify: setup  ## list the suites beyond make test, or run one (SUITE=sim STEPS=200000)
	@$(NAMED) qualify $(MAKEOVERRIDES)

# A worker mostly waits: for a JVM, for programs, for intervals of Dagster. Three keep two cores busy.
WORKERS := 3

# The classes that every JVM of the tests loads, in one file that they share.
CLASSES := $(CACHE)/tests/classes.jsa

$(CLASSES): $(STAMP)
	@$(PY) -m iceberg_maint_tests.support.jvm

.PHONY: test
test: setup  ## all checks: lint, types, docs, then every test (Spark and PostgreSQL included)
	@$(MAKE) -j $(WORKERS) -O lint types docs $(CLASSES)
	$(PY) -m pytest -n $(WORKERS) -m "not variant"

# One shard, some suites, what passed on any commit: NIGHTLY="--shard 2/6", "--only docs observe", "--any-commit".
NIGHTLY :=

.PHONY: nightly
nightly: setup  ## every suite and bench one after another, each within its limit, into docs/project/nightly.md; continues (NIGHTLY="--only docs")
	$(PY) -m iceberg_maint_tests.nightly $(NIGHTLY)

# An environment of its own, without Spark, Dagster, Java and jars.
FAST := $(CACHE)/fast

$(FAST)/.complete: requirements/setup.sh requirements/build.txt requirements/fast.txt
	@bash requirements/setup.sh "$(FAST)"
	@touch $@

.PHONY: test-fast
test-fast: $(FAST)/.complete  ## tests that need no Spark, server or seconds, in an environment that is made in less than a minute
	$(FAST)/bin/python -m pytest -n 2 --fast

.PHONY: dist
dist: setup  ## build the sdist and the wheel into dist/
	$(PY) -m iceberg_maint_tests.qualification.wheel.build dist

.PHONY: house
house: setup  ## measure what a reader of the code must hold in the head: files, the way of one table, words
	$(PY) .ci/house.py

.PHONY: lint
lint: setup  ## ruff: rules and format; codespell and the list of prose habits (.ci/prose.toml)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(PY) .ci/prose.py

.PHONY: format
format: setup  ## let ruff fix what it can
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

.PHONY: types
types: setup  ## mypy, strict
	$(PY) -m mypy

.PHONY: check
check: lint types test-fast  ## the quick loop: lint, types, fast tests

.PHONY: docs
docs: setup  ## build the site of docs/ into build/site; a broken link is an error
	@$(NAMED) apart docs
	PYTHONPATH="$(abspath $(CACHE)/apart/docs)" NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --config-file docs/site/mkdocs.yml

.PHONY: reference
reference: setup  ## write the pages that follow from the code, and the licences of what is installed
	$(PY) -m docs.reference
	$(PY) docs/rooms.py
	$(PY) docs/licences.py
	$(PY) -m iceberg_maint_tests.qualification.regressions --page > docs/project/regressions.md
	@$(NAMED) readme

.PHONY: figures
figures: setup  ## write docs/project/figures.md and its plots from the records of the benches (RECORD=1 make bench … records)
	$(PY) docs/figures.py
	$(PY) docs/plots.py

.PHONY: lock
lock:  ## compile requirements/*.in into hashed locks
	@bash requirements/lock.sh "$(CACHE)"

.PHONY: clean
clean:  ## remove the demo lake, Dagster's storage and tool caches (keeps .venv and jars)
	rm -rf $(DATA) $(DATA)-flink $(DATA)-race build dist *.egg-info .ruff_cache $(CACHE)/mypy $(CACHE)/pytest spark-warehouse
	find iceberg_maint iceberg_maint_tests bench -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

.PHONY: distclean
distclean: clean  ## also remove .venv and the jar cache
	rm -rf $(VENV) $(CACHE)
