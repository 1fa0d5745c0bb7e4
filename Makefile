# `make` prints the targets. Everything runs in .venv, which `setup` makes and `constraints.txt` pins.

PYTHON ?= python3
PRESET ?= quick
ENVS ?=
JOBS ?= 2
TORCH ?=
VENV := .venv
BIN := $(VENV)/bin
# Whatever set-up is complete will do, unless a build of torch is asked for.
STAMP := $(if $(TORCH),$(VENV)/.ready-$(TORCH),$(or $(firstword $(wildcard $(VENV)/.ready*)),$(VENV)/.ready))
# Wheels only: nothing is compiled, nothing unsigned runs at install time.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --constraint constraints.txt
# Without TORCH pip takes the build it prefers; the CPU build carries the local version +cpu.
TORCH_VERSION := $(shell sed -n 's/^torch==//p' constraints.txt)
TORCH_WHEEL = $(or $(torch-$(TORCH)),$(error TORCH is "$(TORCH)"; expected cpu or cuda))
torch- := torch
torch-cpu := torch==$(TORCH_VERSION)+cpu
torch-cuda := torch===$(TORCH_VERSION)

.PHONY: help setup test test-slow lint types format curriculum bench clean
.DELETE_ON_ERROR:

help: ## Print the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

# The stamp is written last: a set-up that was killed has none, and is begun anew.
$(STAMP): setup.cfg pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if (3, 11) <= v < (3, 14) else f"wm needs Python 3.11 to 3.13; {sys.executable} is {v[0]}.{v[1]}. Try make PYTHON=python3.11")'
	@echo "setting up $(VENV) (torch is the big one: a few minutes on a slow line)"
	@ls $(VENV)/.ready* >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@rm -f $(VENV)/.ready*
	@$(PIP) '$(TORCH_WHEEL)' || { echo "torch $(TORCH_VERSION) was not installed; pip says why above. If it has no such build here: leave TORCH out, or name an index that has it in PIP_EXTRA_INDEX_URL"; exit 1; }
	@$(PIP) setuptools
	@$(PIP) --no-build-isolation --editable '.[dev]'
	@touch $@

setup: $(STAMP) ## Make .venv; TORCH=cpu or TORCH=cuda chooses the build of torch

test: $(STAMP) ## Run the tests (5 to 10 minutes)
	$(BIN)/python -m pytest --numprocesses auto

test-slow: $(STAMP) ## Run the long tests
	$(BIN)/python -m pytest -m slow

lint: $(STAMP) ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## Check types
	$(BIN)/mypy

format: $(STAMP) ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

curriculum: $(STAMP) ## Learn Pong, LunarLander, Breakout, CarRacing; PRESET=quick, laptop or paper, ENVS=Pong,CarRacing, JOBS=1
	@$(BIN)/wm curriculum --preset $(PRESET) $(if $(ENVS),--envs $(ENVS)) --jobs $(JOBS)

bench: $(STAMP) ## Run the benchmarks into benchmarks/results.jsonl
	$(BIN)/python -m benchmarks

clean: ## Remove .venv and caches; never data/ or runs/
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
