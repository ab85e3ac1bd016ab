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
FLINK := $(CACHE)/flink
STAMP := $(VENV)/.complete
# The demo lake with its ledger and its Dagster instance, and the port of Dagster's UI.
DATA  := data
PORT  := 3000

# PYTHON=/path/to/python3.12 chooses the interpreter; JAVA_OPTS is passed on to the jar download (proxy, trust store).

.PHONY: help
help:  ## show this list
	@echo "iceberg_maint: keeps Apache Iceberg tables healthy. Two commands to begin with: make run, make test."
	@echo
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-22s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

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

.PHONY: demo-flink
demo-flink: setup $(FLINK)/.complete  ## let Flink upsert two tables while they are maintained, read every snapshot
	$(PY) -m bench.flink --data $(DATA)-flink --flink $(FLINK)

# A lock, the first prerequisite, in the target's folder, beside the environment.
define installed_apart
@rm -rf "$(@D)"
@$(PY) -m pip install --quiet --disable-pip-version-check --no-input --require-hashes --no-deps --no-build-isolation \
  --target "$(@D)" -r $<
@touch $@
endef

$(FLINK)/.complete: requirements/flink.txt $(STAMP)
	@echo "==> Fetching Flink into $(FLINK) (about 320 MB)" >&2
	$(installed_apart)

RACE_SECONDS := 120

.PHONY: demo-race
demo-race: setup  ## race stock rewrite_data_files, its safe setting and ours against one writer (RACE_SECONDS=120 each, STORE=s3)
	$(PY) -m $(if $(filter s3,$(STORE)),iceberg_maint_tests.qualification.chaos,iceberg_maint.demo).race --data $(DATA)-race --seconds $(RACE_SECONDS)

# A worker mostly waits: for a JVM, for programs, for intervals of Dagster. Three keep two cores busy.
WORKERS := 3

# The classes that every Spark of the tests loads, in one file that they share.
CLASSES := $(CACHE)/tests/classes.jsa

$(CLASSES): $(STAMP)
	@$(PY) -m iceberg_maint_tests.support.jvm

.PHONY: test
test: setup  ## all checks: lint, types, docs, deploy files, then every test (Spark and PostgreSQL included)
	@$(MAKE) -j $(WORKERS) -O lint types docs test-deploy $(CLASSES)
	$(PY) -m pytest -n $(WORKERS) -m "not variant"

# One shard, some suites, what passed on any commit: NIGHTLY="--shard 2/6", "--only docs observe", "--any-commit".
NIGHTLY :=

.PHONY: nightly
nightly: setup  ## every suite and bench one after another, each within its limit, into docs/project/nightly.md; continues (NIGHTLY="--only docs")
	$(PY) -m iceberg_maint_tests.nightly $(NIGHTLY)

.PHONY: test-variants
test-variants: setup $(CLASSES)  ## the versions, routes, seeds and places of tests that `make test` does not draw
	$(PY) -m pytest -n $(WORKERS) -m variant

SECOND_SPARK := $(CACHE)/spark35

.PHONY: test-second-spark
test-second-spark: setup $(SECOND_SPARK)/.complete  ## every test of Spark on Spark 3.5 in place of 4.1
	PYTHONPATH="$(abspath $(SECOND_SPARK))" $(PY) -m pytest -n $(WORKERS) iceberg_maint_tests/spark

$(SECOND_SPARK)/.complete: requirements/spark35.txt $(STAMP)
	@echo "==> Building Spark 3.5 into $(SECOND_SPARK) (about 320 MB)" >&2
	$(installed_apart)

.PHONY: test-fast
test-fast: setup  ## tests that need neither a JVM nor a server, but those of modules that take seconds
	$(PY) -m pytest -n 2 -m "not spark and not postgres and not slow and not seconds and not variant"

# How many steps, and the first seed: a life of a table is decided by its seed alone.
STEPS := 5000
SEED  := 1000

.PHONY: test-deep
test-deep: setup  ## all examples of the properties; equality deletes all ways; random programs of all writers and all of maintenance, resumed (STEPS=5000, SEED=1000)
	@status=0; \
	ICEBERG_MAINT_TEST_EXAMPLES=all \
	$(PY) -m pytest -n $(WORKERS) -m "hypothesis and not spark" || status=$$?; \
	ICEBERG_MAINT_TEST_STEPS=$(STEPS) ICEBERG_MAINT_TEST_SEED=$(SEED) \
	$(PY) -m pytest -n $(WORKERS) -s iceberg_maint_tests/spark/deletes/equality iceberg_maint_tests/qualification/program || status=$$?; \
	$(PY) -m iceberg_maint_tests.qualification.program.random_runs; \
	exit $$status

# A life of a simulated world, too, is decided by its seed alone; SIM_SEED is the first.
SIM_STEPS := 200000
SIM_SEED  := 100000

.PHONY: test-sim
test-sim: setup  ## the protocol in simulated worlds: lives, lies, zombies, planted faults (SIM_STEPS=200000, SIM_SEED=100000)
	ICEBERG_MAINT_SIMULATION_STEPS=$(SIM_STEPS) ICEBERG_MAINT_SIMULATION_SEED=$(SIM_SEED) \
	$(PY) -m pytest -s --timeout 0 iceberg_maint_tests/qualification/simulation

# Who does what next is decided by the seed, who comes first by the machine.
SECONDS    := 3600
CHAOS_SEED := 1

.PHONY: test-chaos
test-chaos: setup  ## writers of every kind on PostgreSQL and REST catalogs, ours killed now and then (SECONDS=3600, CHAOS_SEED=1, STORE=s3)
	$(PY) -m iceberg_maint_tests.qualification.chaos --seconds $(SECONDS) --seed $(CHAOS_SEED) --store $(STORE) --results build/chaos.jsonl

# One list, or of one list some numbers: MUTANTS="gate 3 7".
MUTANTS :=
REGRESSIONS :=

.PHONY: test-mutants
test-mutants: setup  ## switches guards of gate, anti-join and orphans off, one by one; a test must see each (MUTANTS="gate 3 7")
	$(PY) -m iceberg_maint_tests.qualification.mutants $(MUTANTS)

# The seed decides what is drawn: DRAWN="--mutants 300 --seed 1", "--only core/commits", "--report", "--spark".
DRAWN := --mutants 300 --seed 1

.PHONY: test-random-mutants
test-random-mutants: setup  ## changes operators and constants drawn by a seed, one by one; a test must see each (DRAWN="--mutants 300 --seed 1")
	$(PY) -m iceberg_maint_tests.qualification.mutants.drawn $(DRAWN)

.PHONY: test-regressions
test-regressions: setup  ## each known regression: its tests red without the guard, green with it (REGRESSIONS="null-keys")
	$(PY) -m iceberg_maint_tests.qualification.regressions $(REGRESSIONS)

# Cases that have a result in .cache/kill are not run again; KILL="--fresh", "--report", "--most 100", "--only K8 JVM" or
# "--store s3 --each-point".
KILL :=

.PHONY: test-kill
test-kill: setup  ## runs killed at every step in every way on every kind of table, what is left of them (KILL="--fresh")
	$(PY) -m iceberg_maint_tests.qualification.kill $(KILL)

RACES     := 1000
RACE_SEED := 1

.PHONY: test-rest-races
test-rest-races: setup  ## races an expiry with a tag on a REST catalog: no file of a lost tag may be released (RACES=1000, RACE_SEED=1)
	$(PY) -m iceberg_maint_tests.qualification.rest_races $(RACES) $(RACE_SEED)

.PHONY: test-zombie
test-zombie: setup  ## fifty runs stopped for longer than their lease lasts, that go on after another has taken it
	$(PY) -m iceberg_maint_tests.qualification.kill.zombies $(KILL)

# A real Prometheus, for example Debian's package or a release of the project.
PROMETHEUS := prometheus
PROMTOOL   := promtool

.PHONY: test-observe
test-observe: setup  ## one real run's numbers in Prometheus, OTLP, DogStatsD and CloudWatch, and they are equal (PROMETHEUS=prometheus)
	$(PROMTOOL) test rules iceberg_maint_tests/telemetry/rules_test.yaml
	$(PY) -m iceberg_maint_tests.qualification.telemetry --prometheus $(PROMETHEUS)

.PHONY: test-audit
test-audit: setup  ## 10,000 audit records on disk and S3 with deaths and damage, which is named (AUDIT="--only s3")
	$(PY) -m iceberg_maint_tests.qualification.audit $(AUDIT)

# A real Alertmanager: Debian's package has this name, a release of the project is `alertmanager`.
ALERTMANAGER := prometheus-alertmanager

.PHONY: test-alerts
test-alerts: setup  ## every kind of alert through a real Alertmanager, sent once and ended once (ALERTMANAGER=prometheus-alertmanager)
	$(PY) -m iceberg_maint_tests.qualification.alerts --alertmanager $(ALERTMANAGER)

.PHONY: demo-cluster
demo-cluster: setup $(CLASSES)  ## the demo lake on S3, REST, PostgreSQL and a Spark cluster; an executor and a worker are killed
	$(PY) -m iceberg_maint_tests.qualification.cluster --cache $(CACHE)

DEPLOY := $(CACHE)/deploy
# A copy of Dagster's Helm chart, which is in no package registry.
CHART  :=

.PHONY: test-cluster
test-cluster: setup $(CLASSES)  ## drivers killed and a worker decommissioned on a Spark cluster, packages by archive, event logs
	$(PY) -m iceberg_maint_tests.qualification.cluster.trials --cache $(CACHE)

.PHONY: test-deploy
test-deploy: setup $(DEPLOY)/.complete  ## the files under deploy/ against their schemas (CHART=folder of Dagster's chart)
	PYTHONPATH="$(abspath $(DEPLOY))" $(PY) -m iceberg_maint_tests.qualification.deploy --tools $(CACHE)/tools $(if $(CHART),--chart $(CHART))

$(DEPLOY)/.complete: requirements/deploy.txt $(STAMP)
	$(installed_apart)

.PHONY: demo-observe
demo-observe: setup  ## the demo lake beside Prometheus and Alertmanager: a table fails, is alerted, recovers (PROMETHEUS=, ALERTMANAGER=)
	$(PY) -m iceberg_maint_tests.qualification.observe --prometheus $(PROMETHEUS) --alertmanager $(ALERTMANAGER)

KILLS     := 20
KILL_SEED := 1

.PHONY: test-daemon-kills
test-daemon-kills: setup  ## kills Dagster's daemon, code server and run workers at drawn moments (KILLS=20, KILL_SEED=1)
	$(PY) -m iceberg_maint_tests.qualification.daemon_kills --kills $(KILLS) --seed $(KILL_SEED)

MINUTES := 30
TABLES  := 2000

.PHONY: test-daemon-fleet
test-daemon-fleet: setup  ## lets Dagster maintain a fleet that is written to, and asks for lost ticks and runs (TABLES=2000, MINUTES=30)
	$(PY) -m iceberg_maint_tests.qualification.daemon_fleet --tables $(TABLES) --minutes $(MINUTES)

.PHONY: dist
dist: setup  ## build the sdist and the wheel into dist/
	$(PY) -m iceberg_maint_tests.qualification.wheel.build dist

.PHONY: test-wheel
test-wheel: setup  ## sdist and wheel built; the wheel installed outside the checkout and used: init, doctor, Dagster, demo
	$(PY) -m iceberg_maint_tests.qualification.wheel

.PHONY: test-first-hour
test-first-hour: setup  ## every command of the Start page "The first hour", in order: install, demo, advise, act, failure, pause
	$(PY) -m iceberg_maint_tests.qualification.first_hour

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

.PHONY: bench-health
bench-health: setup  ## health of 200,000 files from metadata against Spark's metadata tables; fails over target
	$(PY) -m bench.health

.PHONY: bench-fleet
bench-fleet: setup  ## 10,000 small tables and one of 1,000,000 files: cold, unchanged, after commits, a plan; fails over target
	$(PY) -m bench.fleet

.PHONY: bench-looks
bench-looks: setup  ## a pass over 300 tables of a REST catalog with 20 ms of latency, one and eight at once; fails under target
	$(PY) -m bench.looks

.PHONY: bench-footprint
bench-footprint: setup  ## the ledger of 10,000 tables after 90 days on SQLite and PostgreSQL: bytes, every query and its plan; fails over target
	$(PY) -m bench.footprint

.PHONY: bench-small-tables
bench-small-tables: setup  ## 200 small tables in need of work in one run, on the command line and in Dagster; fails over target
	$(PY) -m bench.small_tables

.PHONY: bench-nights
bench-nights: setup  ## 1,000 small tables within the budget of the fleet: a night ends at it, the next goes on; fails otherwise
	$(PY) -m bench.nights

.PHONY: bench-priorities
bench-priorities: setup  ## the order of maintenance at equal budget against AutoComp's and Amoro's scoring; fails below target
	$(PY) -m bench.priorities

.PHONY: sim-fleet
sim-fleet: setup  ## a month of a fleet of 2,000 tables in simulated time: backlog, waits, waste, calls; fails if one waits too long
	$(PY) -m bench.fleet_simulation

.PHONY: bench-native
bench-native: setup  ## the native strategy against stock rewrite_data_files, and the gate; fails over target
	$(PY) -m bench.native
	$(PY) -m bench.gate

.PHONY: bench-columnar
bench-columnar: setup  ## the columnar strategy against stock, stock-tuned and native on seven tables, and what its proof costs; fails over target
	$(PY) -m bench.columnar

.PHONY: bench-reads
bench-reads: setup  ## reads by Spark and DuckDB after columnar, against before and after stock; fails over target
	$(PY) -m bench.reads

.PHONY: bench-row-groups
bench-row-groups: setup  ## reads by Spark and DuckDB of one file by the size of its row groups
	$(PY) -m bench.row_groups

.PHONY: bench-independent-sample
bench-independent-sample: setup  ## CPU of the sample that Iceberg's reader decodes for the proof, first and later ones
	$(PY) -m bench.independent_sample

.PHONY: bench-gate
bench-gate: setup  ## the commit gate on 200,000 live files; fails over target
	$(PY) -m bench.gate

.PHONY: bench-equality-deletes
bench-equality-deletes: setup  ## cleaning equality deletes against stock rewrite_data_files: time, memory, reads; fails over target
	$(PY) -m bench.equality_deletes

.PHONY: bench-cdc
bench-cdc: setup  ## cycles of upserts and maintenance against Iceberg's own actions: CPU, bytes, reads; fails below target
	$(PY) -m bench.cdc

.PHONY: bench-layout
bench-layout: setup  ## a drifted table sorted: files that range queries read, full scans before and after; fails over target
	$(PY) -m bench.layout

.PHONY: bench-housekeeping
bench-housekeeping: setup  ## manifests, expiry and orphans of a grown table against Iceberg's actions; fails over target
	$(PY) -m bench.housekeeping
	$(PY) -m bench.orphans

.PHONY: bench-orphans
bench-orphans: setup  ## scans for orphans among 10,000, 100,000 and 1,000,000 S3 objects: memory, requests; fails over target
	$(PY) -m bench.orphan_scan

.PHONY: bench-conflicts
bench-conflicts: setup  ## batches beside a writer that commits all the time, retries rehearsed and not; fails over target
	$(PY) -m bench.conflicts

.PHONY: bench-open-batches
bench-open-batches: setup  ## manifest entries decoded to judge 100 open batches of a table of many files; fails over target
	$(PY) -m bench.open_batches

.PHONY: test-vended
test-vended: setup  ## a rewrite by Spark that outlasts the credentials that a REST catalog vends; fetches Iceberg's AWS bundle
	$(PY) -m iceberg_maint_tests.qualification.vended --cache .cache

# One cell or some: SURROUNDINGS="--catalog hive --store moto".
SURROUNDINGS :=
AROUND := $(CACHE)/surroundings/python

.PHONY: test-surroundings
test-surroundings: setup $(AROUND)/.complete  ## one behaviour suite over catalogs and stores that start here; fetches their servers (SURROUNDINGS="--catalog hive")
	PYTHONPATH="$(abspath $(AROUND))" $(PY) -m iceberg_maint_tests.qualification.surroundings --cache $(CACHE) $(SURROUNDINGS)

$(AROUND)/.complete: requirements/surroundings.txt $(STAMP)
	@echo "==> Fetching the client of Hive and a Java for Nessie into $(AROUND) (about 40 MB)" >&2
	$(installed_apart)

READERS := $(CACHE)/readers

.PHONY: test-readers
test-readers: setup $(READERS)/.complete  ## five engines read the demo lake and odd tables before and after maintenance; none may lose one
	$(PY) -m iceberg_maint_tests.qualification.readers --apart $(READERS)

$(READERS)/.complete: requirements/readers.txt $(STAMP)
	@echo "==> Fetching Polars, Daft and ClickHouse into $(READERS) (about 400 MB)" >&2
	$(installed_apart)

# Some faults, kinds of requests, calls: UNRELIABLE="--fault cut --kind data".
UNRELIABLE :=

.PHONY: test-unreliable
test-unreliable: setup  ## calls on an S3 that throttles, fails, hangs, resets and cuts answers, by rule (UNRELIABLE="--fault cut")
	$(PY) -m iceberg_maint_tests.qualification.surroundings.unreliable --cache $(CACHE) $(UNRELIABLE)

.PHONY: test-credentials
test-credentials: setup  ## every source of S3 credentials, each with executors of their own (CREDENTIALS="--source instance")
	$(PY) -m iceberg_maint_tests.qualification.surroundings.credentials --cache $(CACHE) $(CREDENTIALS)

.PHONY: bench-start
bench-start: setup  ## import, help, pointer pass, 1,000 definitions; fails over target
	$(PY) -m bench.start

.PHONY: bench-dagster
bench-dagster: setup  ## Dagster over 10,000 tables, in one code location and in four: location, run, ticks, cycle; fails over target
	$(PY) -m bench.dagster_fleet

.PHONY: bench-dagster-partitions
bench-dagster-partitions: setup  ## Dagster over a table of 50,000 partitions: ticks, pages by GraphQL, a backfill of all; fails over target
	$(PY) -m bench.dagster_partitions

.PHONY: bench-dagster-storage
bench-dagster-storage: setup  ## Dagster's storage over 90 days on SQLite and PostgreSQL: bytes of runs, observations, ticks; fails if it does not level off
	$(PY) -m bench.dagster_storage

.PHONY: bench-red-to-green
bench-red-to-green: setup  ## seconds from a commit to green checks under `dagster dev`, on a demo lake of its own; fails over target
	$(PY) -m bench.red_to_green

.PHONY: screenshots
screenshots: setup  ## take the pictures of the real UI used in the docs, in dark and light, from `make dev` (needs Chromium)
	$(BIN)/pip install --quiet --require-hashes --no-deps -r requirements/screenshots.txt
	$(PY) docs/screenshots.py --url http://127.0.0.1:$(PORT)

.PHONY: report-pictures
report-pictures: setup  ## take the pictures of report and assessment, of `make run` and of a sick lake in sick/ (needs Chromium)
	$(BIN)/pip install --quiet --require-hashes --no-deps -r requirements/screenshots.txt
	$(PY) docs/report_pictures.py --maintained $(DATA)/iceberg_maint.yaml --sick sick/iceberg_maint.yaml

.PHONY: jars
jars: setup  ## fetch and verify the jars again
	JAVA_OPTS="$${JAVA_OPTS:-}" $(PY) -m iceberg_maint.engines.spark.session.jars --cache $(CACHE)

DOCS := $(CACHE)/docs

.PHONY: docs
docs: setup $(DOCS)/.complete  ## build the site of docs/ into build/site; a broken link is an error
	PYTHONPATH="$(abspath $(DOCS))" NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --config-file docs/site/mkdocs.yml

$(DOCS)/.complete: requirements/docs.txt $(STAMP)
	$(installed_apart)

.PHONY: upstream
upstream: setup  ## run the reproductions of faults of Iceberg and others on stock (docs/upstream), print what each shows
	@ICEBERG_JARS="$$($(PY) -m iceberg_maint.engines.spark.session.jars --cache $(CACHE) | grep iceberg-spark-runtime)" $(PY) docs/upstream/run.py

.PHONY: reference
reference: setup  ## write the pages that follow from the code: commands, metrics, policy, reasons, regressions, the picture of rooms
	$(PY) docs/reference.py
	$(PY) docs/rooms.py
	$(PY) -m iceberg_maint_tests.qualification.regressions --page > docs/project/regressions.md

.PHONY: figures
figures: setup  ## write docs/project/figures.md from the records of the benches, and draw the plots (RECORD=1 make bench-… records)
	$(PY) docs/figures.py
	$(PY) docs/plots.py

.PHONY: licences
licences: setup  ## write docs/project/licences.md from what is installed
	$(PY) docs/licences.py

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
