# Every target sets up what it needs: a virtual environment in .venv with pinned dependencies and an
# embedded MongoDB. Tools are called as `python -m …`, never by their scripts: a script's first line
# cannot hold a path with spaces.
PYTHON ?= python3
PY := .venv/bin/python
# Test processes. Tests wait for time and for other processes about as long as they compute: three of them
# keep two cores busy.
JOBS ?= 3

.DEFAULT_GOAL := help

help: ## show what there is
	@grep -hE '^[a-z-]+:.*## ' Makefile | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

.venv/ready: requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Monque needs Python 3.11 or newer; run: make PYTHON=python3.12 ...")'
	@echo "setting up .venv (only the first time) ..."
	@test -x $(PY) || $(PYTHON) -m venv .venv
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch .venv/ready

setup: .venv/ready ## create .venv with everything in it

demo: .venv/ready ## see it work: a live show on an embedded MongoDB
	@$(PY) -m monque.demo

test: lint .venv/ready ## everything: lint, types, import contracts, all tests; FULL=1 with the numbers of the specification
	@$(if $(FULL),MONQUE_TEST_FULL=1) $(PY) -m pytest -n $(JOBS) --dist worksteal

lint: .venv/ready ## style, types and import contracts
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(PY) -c 'from importlinter.cli import lint_imports_command as main; main()'

format: .venv/ready ## put the code in its one format
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

coverage: .venv/ready ## all tests, with the lines they miss
	@$(PY) -m coverage erase
	@$(PY) -m coverage run -m pytest
	@$(PY) -m coverage combine --quiet && $(PY) -m coverage report

# Which scenarios, and how many pairs of each.
CHOICE = $(if $(FULL),--full) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(ONLY),--only $(ONLY))

bench: .venv/ready ## how fast it is, beside plain PyMongo; FULL=1 for all scenarios, ONLY="drain pick-up" for some
	@$(PY) -m bench $(CHOICE) $(if $(LOOP),--loop $(LOOP)) --json bench/results/latest.json

bench-compare: .venv/ready ## this checkout beside another: make bench-compare BASE=main ROUNDS=7 ONLY="drain pick-up"
	@$(PY) -m bench.compare $(or $(BASE),main) $(CHOICE) --json bench/results/compare.json

trace: .venv/ready ## the path of one job through the code
	@$(PY) -m bench.trace --draw

chaos: .venv/ready ## break everything for a while and check what comes of it: make chaos DURATION=10m SEED=7; OLD=c7dec4f beside an older version
	@$(PY) -m chaos --duration $(or $(DURATION),1m) $(if $(SEED),--seed $(SEED)) $(if $(OLD),--old $(OLD)) --json chaos/results/latest.json

docs: .venv/ready ## build the documentation into site/
	@$(PY) -m zensical build --clean --strict

ui: .venv/ready ## build the pages of the dashboard into the package (needs Node 20.19 or newer)
	@cd ui && npm ci --silent --no-audit --no-fund
	@$(PY) ui/make_types.py
	@cd ui && npm run --silent check && npm run --silent test && npm run --silent build

ui-dev: .venv/ready ## serve the pages with reload, beside a running `monque web` (or the one at MONQUE_API)
	@cd ui && npm ci --silent --no-audit --no-fund
	@$(PY) ui/make_types.py
	@cd ui && npm run --silent dev

build: .venv/ready ## the wheel and the sdist, in dist/
	@$(PY) -m hatchling build

pins: ## write requirements/dev.txt anew (needs uv)
	@uv pip compile --quiet --universal --upgrade --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
	  --custom-compile-command "make pins" --all-extras pyproject.toml requirements/dev.in -o requirements/dev.txt

clean: ## remove what was built
	@rm -rf .venv dist site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage .coverage.*

.PHONY: help setup demo test lint format coverage bench bench-compare trace chaos docs ui ui-dev build pins clean
