# `make` prints the targets. Everything runs in .venv, which `setup` creates and `constraints.txt` pins.

PYTHON ?= python3
PRESET ?= quick
ENVS ?=
JOBS ?= 2
COMMA := ,
TORCH ?=
VENV := .venv
BIN := $(VENV)/bin
# Any complete set-up is accepted, unless TORCH asks for a build of torch.
STAMP := $(if $(TORCH),$(VENV)/.ready-$(TORCH),$(or $(firstword $(wildcard $(VENV)/.ready*)),$(VENV)/.ready))
# Wheels only: nothing is compiled, nothing unsigned runs at install time.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --constraint constraints.txt
# Without TORCH pip takes the build it prefers; the CPU build carries the local version +cpu.
TORCH_VERSION := $(shell sed -n 's/^torch==//p' constraints.txt)
TORCH_WHEEL = $(or $(torch-$(TORCH)),$(error TORCH is "$(TORCH)"; expected cpu or cuda))
torch- := torch
torch-cpu := torch==$(TORCH_VERSION)+cpu
torch-cuda := torch===$(TORCH_VERSION)

.PHONY: help setup test test-slow test-extras lint types format curriculum pretrained bench docs site clean
.DELETE_ON_ERROR:

help: ## Print the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

# The stamp is written last, so a set-up that was killed starts again.
$(STAMP): setup.cfg pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if (3, 11) <= v < (3, 14) else f"wm needs Python 3.11 to 3.13; {sys.executable} is {v[0]}.{v[1]}. Try make PYTHON=python3.11")'
	@echo "setting up $(VENV); torch is the largest download"
	@ls $(VENV)/.ready* >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@rm -f $(VENV)/.ready*
	@$(PIP) '$(TORCH_WHEEL)' || { echo "torch $(TORCH_VERSION) was not installed; see pip's message above. If this index has no such build, leave TORCH out or set PIP_EXTRA_INDEX_URL"; exit 1; }
	@$(PIP) setuptools
	@$(PIP) --no-build-isolation --editable '.[dev]'
	@touch $@

setup: $(STAMP) ## Create .venv; TORCH=cpu or TORCH=cuda selects the build of torch

test: $(STAMP) ## Run the tests (5 minutes on two cores)
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile

test-slow: $(STAMP) ## Run the long tests
	$(BIN)/python -m pytest -m slow

test-extras: $(STAMP) ## Run the tests that need an extra, with all extras installed beside .venv
	$(BIN)/python -m pytest -m slow tests/test_with_extras.py

lint: $(STAMP) ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## Check types
	$(BIN)/mypy

format: $(STAMP) ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

curriculum: $(STAMP) ## Train on Pong, LunarLander, Breakout, CarRacing; PRESET=quick, laptop, dream or paper, ENVS=Pong,CarRacing, JOBS=1
	@$(BIN)/wm curriculum --preset $(PRESET) $(if $(ENVS),--envs $(ENVS)) --jobs $(JOBS)

pretrained: PRESET := laptop
pretrained: curriculum ## Train with PRESET=laptop, and pack each run into dist/ENV.zip of at most 6.25 MB for `wm pull`
	@mkdir -p dist
	@for env in $(if $(ENVS),$(subst $(COMMA), ,$(ENVS)),Pong LunarLander Breakout CarRacing); do \
		run=$$(ls -d runs/$$env runs/$$env.round* 2>/dev/null | sort -V | tail -1); \
		$(BIN)/wm push $$run dist/$$env.zip --max-size 6250kB --without latents || exit; \
	done

docs: $(STAMP) ## Write the generated pages of docs/ and README's tables
	for page in reference scores peers learning speed scale memory dreamer_memory; do $(BIN)/python -m benchmarks.pages.$$page || exit; done

site: $(STAMP) ## Build docs/ into build/site
	@$(PIP) --no-build-isolation --editable '.[docs]'
	$(BIN)/zensical build --strict

bench: $(STAMP) ## Run the benchmarks into benchmarks/results.jsonl
	$(BIN)/python -m benchmarks

clean: ## Remove .venv and caches; never data/ or runs/
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
