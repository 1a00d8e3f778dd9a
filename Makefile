# Everything starts from here; `make help` lists the targets. Only python3 >= 3.11 with pip, make and git have to be there.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
UV := .uv/bin/uv
BIN := .venv/bin

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: venv
venv: .venv/.synced ## make .venv from requirements.lock, with this package in it

# uv comes from PyPI by pip, in the version and with the hashes of the lock.
$(UV): requirements.lock
	@echo "== installing uv"
	@rm -rf .uv
	@sed -n '/^uv==/,/# via/p' requirements.lock \
	  | $(PYTHON) -m pip install --quiet --root-user-action ignore --target .uv --require-hashes --requirement /dev/stdin
	@touch $@

.venv/.synced: $(UV) pyproject.toml airflow_learner_provider/__init__.py
	@echo "== installing the locked packages into .venv"
	@[ -x $(BIN)/python ] || $(UV) venv --quiet --python $(PYTHON) .venv
	@$(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: lock
lock: $(UV) ## pin what pyproject.toml asks for in requirements.lock (UPGRADE=1: the newest of everything)
	$(UV) pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade) \
	  --quiet --output-file requirements.lock
