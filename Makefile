# Every target sets up what it needs: a virtual environment in .venv with pinned dependencies and an
# embedded MongoDB, npm packages in ui/, a browser and an nginx for the tests. Tools are called as
# `python -m …`, never by their scripts: a script's first line cannot hold a path with spaces.
PYTHON ?= python3
PY := .venv/bin/python
INSTALL := $(PY) -m pip install --quiet --disable-pip-version-check
PAGES := $(PY) ui/build_pages.py
# Test processes. Tests wait for time and for other processes: three of them keep two cores busy. With four, a
# machine that is shared stands still so often that tests which count commands see it.
JOBS ?= 3

.DEFAULT_GOAL := help

help: ## show what there is
	@grep -hE '^[a-z-]+:.*## ' Makefile | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

# What the demo and the dashboard need. The rest is ten times as much, and comes with the first target that needs it.
.venv/demo: requirements/demo.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Monque needs Python 3.11 or newer; run: make PYTHON=python3.12 ...")'
	@echo "setting up .venv (only the first time) ..."
	@test -x $(PY) || $(PYTHON) -m venv .venv
	@$(INSTALL) --require-hashes -r requirements/demo.txt
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch .venv/demo

.venv/ready: .venv/demo requirements/dev.txt
	@echo "setting up what development needs (only the first time) ..."
	@$(INSTALL) --require-hashes -r requirements/dev.txt
	@touch .venv/ready

# A Node in a place of its own, if there is none on PATH or an old one.
node: .venv/demo
	@$(PAGES) node || { echo "no Node 20.19 or newer with npm on PATH: fetching one ..." && $(INSTALL) --require-hashes --target .cache/node -r requirements/node.txt; }

setup: .venv/ready ## create .venv with everything in it

demo: .venv/demo ## see it work: a live show on an embedded MongoDB
	@$(PY) -m monque.demo

dashboard: ui ## see the dashboard: a shop that never sleeps, on an embedded MongoDB; SEED=7 and PORT=8787 choose others
	@$(PY) -m examples.shop $(if $(SEED),--seed $(SEED)) $(if $(PORT),--port $(PORT))

test: compiled lint ui ## everything: lint, types, import contracts, all tests; FULL=1 with the numbers of the specification
	@sh .ci/browser || true
	@sh .ci/nginx || true
	@$(PAGES) test
	@$(if $(FULL),MONQUE_TEST_FULL=1) $(PY) -m pytest -n $(JOBS) --dist worksteal --durations 20 --durations-min 5

# The tests are compiled while lint uses one core. Otherwise each test process would compile them all.
compiled: .venv/ready
	@$(PY) -m pytest --collect-only -qq >/dev/null 2>&1 &

quick: .venv/ready ## the inner loop: the tests of units and web, without Node or a browser, below 90 seconds
	@$(PY) -m pytest -n $(JOBS) --dist worksteal -m "not thorough" tests/unit tests/web

sharded: .venv/ready node ## the tests on a sharded cluster of MongoDB 8.2, which it fetches (Linux on x86_64)
	@$(PY) .ci/fetch_servers.py
	@test ! -e .cache/sharded/mongos || MONQUE_TEST_MONGOD="$(CURDIR)/.cache/sharded/mongod" \
	  MONQUE_TEST_MONGOS="$(CURDIR)/.cache/sharded/mongos" $(PY) -m pytest tests/sharded

scale: .venv/ready node ## what jobs cost on a replica set and on two shards, by names and worker processes (Linux on x86_64)
	@$(PY) .ci/fetch_servers.py
	@test ! -e .cache/sharded/mongos || PYTHONPATH=tests MONQUE_MONGOD="$(CURDIR)/.cache/sharded/mongod" \
	  MONQUE_TEST_MONGOS="$(CURDIR)/.cache/sharded/mongos" $(PY) -m bench.scale --json bench/results/scale.json

lint: .venv/ready node ## style, types (also of the pages) and import contracts
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(PY) tools/make_sync.py --check
	@$(PY) ui/make_tables.py --check
	@$(PY) -c 'from importlinter.cli import lint_imports_command as main; main()'
	@$(PAGES) check

browser: .venv/demo ## set up a browser for the tests (on Debian, as root)
	@sh .ci/browser

nginx: ## set up an nginx for the tests (on Debian, as root)
	@sh .ci/nginx

sync: .venv/ready ## write the methods of SyncMonque, from those of Monque
	@$(PY) tools/make_sync.py

tables: .venv/ready ## write the tables of filters and operations for the pages, from those of the core
	@$(PY) ui/make_tables.py

format: .venv/ready node ## put the code in its one format
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .
	@$(PAGES) format

coverage: .venv/ready ui ## all tests, with the lines they miss
	@$(PY) -m coverage erase
	@$(PY) -m coverage run -m pytest
	@$(PY) -m coverage combine --quiet && $(PY) -m coverage report

# Which scenarios, and how many pairs of each.
CHOICE = $(if $(FULL),--full) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(ONLY),--only $(ONLY))

bench: .venv/ready ## how fast it is, beside plain PyMongo; FULL=1 for all scenarios, ONLY="drain pick-up" for some
	@$(PY) -m bench $(CHOICE) $(if $(LOOP),--loop $(LOOP)) --json bench/results/latest.json

bench-compare: .venv/ready ## this checkout beside another: make bench-compare BASE=main ROUNDS=7 ONLY="drain pick-up"
	@$(PY) -m bench.compare $(or $(BASE),main) $(CHOICE) --json bench/results/compare.json

bench-peers: .venv/ready ## Monque beside other queues in one run, up to an hour; ONLY="celery rq" for some, ROUNDS=1, WRITE=1 puts the tables into the docs
	@$(PY) -m bench.peers $(if $(ONLY),--only $(ONLY)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(WRITE),--write)

trace: .venv/ready ## the path of one job through the code; STORY=retry shows another one, STORY=all the figures of each
	@$(PY) -m bench.trace $(if $(filter all,$(STORY)),,--draw) --story $(or $(STORY),lone)

chaos: .venv/ready ## break everything for a while and check what comes of it: make chaos DURATION=10m SEED=7; OLD=c7dec4f beside an older version
	@$(PY) -m chaos --duration $(or $(DURATION),1m) $(if $(SEED),--seed $(SEED)) $(if $(OLD),--old $(OLD)) --json chaos/results/latest.json

screenshots: .venv/ready ui ## draw the pictures of the dashboard that the docs show; ONLY="overview jobs" for some
	@PYTHONPATH=tests $(PY) -m pictures $(ONLY)

matrix: .venv/ready ui ## the tests on other Pythons, servers and versions: make matrix ROWS="3.12 lowest" TESTS=tests/unit; WRITE=1 puts the table into the docs
	@ROWS="$(ROWS)" TESTS="$(TESTS)" JOBS="$(JOBS)" WRITE="$(WRITE)" $(PY) -m nox

docs: .venv/ready ## build the documentation into site/, with llms.txt and llms-full.txt
	@$(PY) -m zensical build --clean --strict
	@$(PY) tools/make_llms.py site

ui: node ## build the pages of the dashboard into the package, if they changed
	@$(PAGES)

ui-dev: .venv/demo node ## serve the pages with reload, beside a running `monque web` (or the one at MONQUE_API)
	@$(PAGES) serve

build: .venv/ready ui ## the wheel and the sdist, in dist/
	@$(PY) -m hatchling build

release-check: build ## try the wheel and the sdist as a user would: installed in clean environments, with the program of the README
	@$(PY) tools/release_check.py

# The versions of demo.txt are those of dev.txt.
COMPILE = uv pip compile --quiet --universal --upgrade --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
  --custom-compile-command "make pins"

pins: ## write the pins in requirements/ anew (needs uv)
	@$(COMPILE) --all-extras pyproject.toml requirements/dev.in -o requirements/dev.txt
	@$(COMPILE) --extra cli --extra embedded --extra web --constraints requirements/dev.txt pyproject.toml requirements/demo.in -o requirements/demo.txt
	@$(COMPILE) requirements/node.in -o requirements/node.txt

clean: ## remove what was built
	@rm -rf ui/node_modules ui/tools/node_modules ui/.tests ui/src/api.gen.ts src/monque/web/static .cache/node .cache/npm .cache/matrix .cache/sharded
	@rm -rf .venv dist site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage .coverage.*

.PHONY: help compiled setup demo dashboard screenshots test quick sharded scale lint sync tables browser nginx format coverage bench bench-compare trace chaos matrix docs node ui ui-dev build pins clean

.NOTPARALLEL: # the set-ups write into the same folders
