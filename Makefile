# `make` alone prints this help. Everything is set up as needed, in .venv and build/.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# meson and ninja of the environment, also for pip and for rebuilds on import.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Only for lint and format, so not asked for before.
C_SOURCES = $(shell git ls-files -co --exclude-standard 'csrc/*.[ch]' 'tests/*.[ch]' 'src/*.[ch]')

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-c test-sanitizers test-python test-pythons lint format bench glibcs clean

help: ## print this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.ready: pyproject.toml meson.build meson.options
	@$(PYTHON) tools/check_machine.py
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) (a minute on a new machine)"
	@$(BIN)/python tools/install.py
	@touch $@

setup: $(VENV)/.ready ## build giveback into .venv, with what is needed to work on it
	@:

demo: setup ## a program whose memory spikes and is freed: plain, and under giveback
	@$(BIN)/python examples/demo.py

test: setup test-c test-sanitizers test-python test-pythons ## all tests

test-c: setup ## the C unit tests
	@$(BIN)/python tools/meson_tests.py build/test

test-sanitizers: setup ## the C unit tests under ASan and UBSan, then TSan
	@$(BIN)/python tools/meson_tests.py build/test-address --sanitize address,undefined
	@$(BIN)/python tools/meson_tests.py build/test-thread --sanitize thread

test-python: setup ## the Python tests: real processes, five glibcs, properties
	@$(BIN)/python -m pytest

test-pythons: setup ## the tests of the package on the other Pythons that are found
	@$(BIN)/python tools/other_pythons.py

lint: setup ## ruff, mypy, clang-format, clang-tidy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/clang-format --dry-run --Werror $(C_SOURCES)
	@$(BIN)/python tools/tidy.py

format: setup ## rewrite the sources as ruff and clang-format want them
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@$(BIN)/clang-format -i $(C_SOURCES)

bench: setup ## measure the view, then the engine against plain glibc and other allocators (over an hour)
	@$(BIN)/python benchmarks/view.py
	@$(BIN)/giveback bench all --kernel old --json build/bench.json $$($(BIN)/python tools/peers.py --options)

glibcs: setup ## fetch the glibcs that tests run on, and say which are missing
	@$(BIN)/python tools/glibcs.py

clean: ## remove .venv and everything built; downloads stay in the cache folder
	@rm -rf $(VENV) .venv-* build .mypy_cache .pytest_cache .ruff_cache .hypothesis
