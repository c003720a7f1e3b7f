# Everything runs from .venv, made from the locked versions: a fresh clone needs Python 3.11 or later and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Written last, so that an interrupted set-up is done again and a finished one costs nothing.
STAMP := $(VENV)/.installed
# A folder that is still empty is not in a fresh clone, and the tools refuse a path that is not there.
SOURCES := $(wildcard src tests benches examples)

# pip-compile without any address of an index in what it writes: the lock holds for whichever index a reader uses.
COMPILE := CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --all-extras --allow-unsafe --strip-extras \
	--generate-hashes --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options \
	--resolver=backtracking --output-file=requirements.lock

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-live test-worlds test-others test-processes test-unmeasured test-pipeline lint format fuzz explore planted digests model bench figures chaos lock clean

help: ## say what each target does
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  %-8s %s\n", $$1, $$2}' Makefile

setup: $(STAMP) ## make .venv with the locked versions and this project

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Ordercast needs Python 3.11 or later: make PYTHON=python3.11 setup")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup ## show ordered delivery, a failure and the recovery on this machine; about a minute
	$(BIN)/ordercast demo

# Tests start hundreds of processes. Each would compile every module anew where the environment forbids to keep what was
# compiled, as containers often do; empty is no.
export PYTHONDONTWRITEBYTECODE :=

# Measuring doubles the time, so it is left to tests that run code which no other test runs. Those that run the same code
# more often, or look at how fast something is, are not measured.
UNMEASURED := tests/paper tests/model tests/sim/test_planted_bugs.py tests/sim/test_digests.py tests/sim/test_world_fuzz.py \
	tests/sim/test_named_seeds.py tests/sim/test_sites_priorities.py tests/sim/bulk/test_bulk_rates.py \
	tests/unit/test_large_groups.py tests/unit/test_checkers_speed.py tests/explore/test_planted.py \
	tests/components/test_planted.py

# The same, in processes of their own.
PROCESSES := tests/network/test_failures.py tests/network/test_node_restart.py tests/network/test_sites_processes.py \
	tests/network/test_examples.py tests/network/test_node_examples.py tests/network/test_demo.py \
	tests/daemon/test_daemons_and_clients.py tests/unit/test_cli_bench.py

# Tests with sockets and disks: they wait more than they work. And those with whole worlds.
LIVE := tests/archive tests/daemon tests/network
WORLDS := tests/sim tests/explore tests/components tests/figures

# Parts run beside each other, the longest first, and more of them than there are cores: who waits leaves one idle.
PARTS := test-worlds test-pipeline test-unmeasured test-live test-others test-processes lint

test: ## lint, types, all tests and how much of the code they run
	@rm -f .coverage .coverage.*
	@$(MAKE) --no-print-directory --jobs=4 --output-sync=target $(PARTS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

test-live: setup
	$(BIN)/python -m coverage run -m pytest $(LIVE) $(addprefix --ignore=,$(PROCESSES))

test-worlds: setup
	$(BIN)/python -m coverage run -m pytest $(WORLDS) $(addprefix --ignore=,$(UNMEASURED))

test-others: setup
	$(BIN)/python -m coverage run -m pytest $(addprefix --ignore=,tests/pipeline $(LIVE) $(WORLDS) $(UNMEASURED) $(PROCESSES))

test-processes: setup
	$(BIN)/python -m pytest $(PROCESSES)

test-unmeasured: setup
	$(BIN)/python -m pytest $(UNMEASURED)

test-pipeline: setup
	$(BIN)/python -m pytest tests/pipeline

lint: setup ## style, format and types, nothing changed
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy

format: setup ## put the code into shape
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

# Another first seed each time, printed by each command; FIRST=12345678 repeats one. LEDGER=1 writes docs/seeds.md.
SEEDS = $(if $(FIRST),--first-seed $(FIRST)) $(if $(LEDGER),--ledger docs/seeds.md --quote README.md)

fuzz: setup ## simulate many fresh seeds with faults and check every guarantee; FIRST=N repeats, LEDGER=1 records them
	$(BIN)/ordercast fuzz --orderer token --runs 3000 --jobs 2 $(SEEDS)
	$(BIN)/ordercast fuzz --orderer sequencer --runs 2000 --jobs 2 $(SEEDS)
	$(BIN)/ordercast fuzz --orderer timestamp --runs 2000 --jobs 2 $(SEEDS)
	$(BIN)/ordercast fuzz --orderer timestamp --no-anticipate --runs 2000 --jobs 2 $(SEEDS)
	$(BIN)/ordercast fuzz --profile membership --orderer token --runs 3000 --jobs 2 $(SEEDS)
	$(BIN)/ordercast fuzz --profile membership --orderer sequencer --runs 3000 --jobs 2 $(SEEDS)
	$(BIN)/ordercast fuzz --profile membership --orderer timestamp --runs 3000 --jobs 2 $(SEEDS)
	$(BIN)/ordercast fuzz --profile patience --orderer token --runs 1000 --jobs 2 $(SEEDS)
	$(BIN)/ordercast fuzz --profile patience --orderer sequencer --runs 1000 --jobs 2 $(SEEDS)
	$(BIN)/ordercast fuzz --profile patience --orderer timestamp --runs 1000 --jobs 2 $(SEEDS)
	$(BIN)/ordercast fuzz --many-groups --orderer token --runs 1000 --jobs 2 $(SEEDS)
	$(BIN)/ordercast fuzz --many-groups --orderer sequencer --runs 1000 --jobs 2 $(SEEDS)
	$(BIN)/ordercast fuzz --many-groups --orderer timestamp --runs 1000 --jobs 2 $(SEEDS)
	$(BIN)/ordercast fuzz --profile gathering --orderer token --runs 1000 --jobs 2 $(SEEDS)
	$(BIN)/ordercast fuzz --profile gathering --orderer sequencer --runs 1000 --jobs 2 $(SEEDS)
	$(BIN)/ordercast fuzz --profile gathering --orderer timestamp --runs 1000 --jobs 2 $(SEEDS)
	$(BIN)/ordercast fuzz --profile sessions --orderer sites --runs 1500 --jobs 2 $(SEEDS)
	$(BIN)/ordercast fuzz --profile sessions --orderer token --runs 1500 --jobs 2 $(SEEDS)
	$(BIN)/ordercast fuzz --orderer regions --runs 2000 --jobs 2 $(SEEDS)

explore: setup ## small groups through every order of failures within a bound
	$(BIN)/ordercast explore --orderer token --scenario all --deviations 2 --seconds 60 --jobs 2
	$(BIN)/ordercast explore --orderer sequencer --scenario all --deviations 2 --seconds 60 --jobs 2
	$(BIN)/ordercast explore --orderer timestamp --scenario all --deviations 2 --seconds 60 --jobs 2

planted: setup ## plant every known bug and check that the simulation catches it
	$(BIN)/python -m tests.sim.planted --check

digests: setup ## run 300 seeds of each orderer and say whose trace has changed
	$(BIN)/python -m tests.sim.digests

model: setup ## exhaust the models of membership and of sites, and say how many states that are
	$(BIN)/python -m tests.model.exhaust
	$(BIN)/python -m tests.model.evs.chance 20000 1
	$(BIN)/python -m tests.model.evs.explore 120
	$(BIN)/python -m tests.model.regions.chance 10000 1
	$(BIN)/python -m tests.model.regions.explore 120

bench: setup ## measure throughput and latency on this machine
	$(BIN)/python benches/run.py

figures: setup ## measure the papers' figures again and write docs/figures.md and its pictures
	$(BIN)/python -m tests.figures.page --write

chaos: setup ## as root on Linux: kills, losses, cuts, pauses and restarts of processes; CHAOS=--loopback needs no root
	$(BIN)/python benches/chaos.py $(CHAOS)

lock: ## compile requirements.lock anew from pyproject.toml; UPGRADE=--upgrade takes the newest versions
	test -x $(BIN)/pip-compile || { $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet pip-tools; }
	$(COMPILE) $(UPGRADE) pyproject.toml

clean: ## remove .venv, caches and build output
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.*
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
