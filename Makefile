# Everything starts from here; `make help` lists the targets. Only python3 >= 3.11 with pip, make and git have to be there.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
PYTHON ?= python3
UV := .uv/bin/uv
BIN := .venv/bin
TIERS = $(wildcard tests/unit tests/cluster tests/browser)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: venv
venv: .venv/.synced ## make .venv from requirements.lock, with this package in it

# uv comes from PyPI by pip, in the version and with the hashes of the lock.
$(UV): requirements.lock
	@echo "== installing uv"
	rm -rf .uv
	sed -n '/^uv==/,/# via/p' requirements.lock | $(PYTHON) -m pip install --quiet --disable-pip-version-check \
	  --root-user-action ignore --target .uv --require-hashes --requirement /dev/stdin
	touch $@

.venv/.synced: $(UV) pyproject.toml airflow_learner_provider/__init__.py
	@echo "== installing the locked packages into .venv"
	[ -x $(BIN)/python ] || $(UV) venv --quiet --python $(PYTHON) .venv
	$(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	touch $@

.PHONY: lint
lint: venv ## format, rules, types, and which module may import which
	@echo "== format and rules"
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	echo "== types"
	$(BIN)/mypy
	echo "== imports"
	$(BIN)/lint-imports --no-logo

.PHONY: docs
docs: venv ## build the pages of docs/ in build/docs, and check their links
	@echo "== docs"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

.PHONY: check
check: lint docs ## lint, docs and unit tests: what needs no cluster
	@echo "== unit tests"
	$(BIN)/pytest

# Without KUBECONFIG the tests run on a local cluster: the first start builds it, which takes about ten minutes.
# It stays up afterwards, for the next run.
.PHONY: test
test: lint docs browser ## everything: lint, then unit, cluster and browser tests in one run
	@if [ -z "$${KUBECONFIG:-}" ]; then
	  echo "== starting the local cluster"
	  KUBECONFIG=$$($(BIN)/python -m dev.cluster up --images digits)
	  export KUBECONFIG
	fi
	echo "== tests on $$KUBECONFIG"
	$(BIN)/pytest $(TIERS)

.PHONY: bench
bench: venv ## measure speed and scale; writes the tables into docs/ (ONLY=a,b: some of them; QUICK=1: few rounds, no page)
	@$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick,--pages)

.PHONY: browser
browser: # the browser tests drive Debian's Chromium
	@if [ -d tests/browser ] && ! command -v chromium >/dev/null; then
	  echo "== installing Chromium"
	  apt-get update --quiet=2
	  DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --no-install-recommends chromium
	fi

# Airflow 3.2 with the oldest packages that are declared, and the newest Airflow with the newest ones. Airflow's own
# releases name no upper bounds: the API server of 3.2 does not start with FastAPI 0.165.
MATRIX := 3.2 3.3
MATRIX_3.2 := apache-airflow==3.2.* apache-airflow-providers-cncf-kubernetes==10.18.* kubernetes==36.0.1 pydantic==2.12.* fastapi==0.135.*
MATRIX_3.3 := apache-airflow==3.3.* kubernetes==36.*
# What is about the lock's packages, and what only Airflow 3.3 has: retry policies.
MATRIX_OMIT := --ignore tests/unit/test_wheel.py --deselect tests/unit/test_package.py::test_lock_answers_each_requirement
MATRIX_OMIT_3.2 := $(addprefix --ignore tests/unit/,test_import_budget.py test_reasons.py test_retry.py)
MATRIX_CLUSTER := $(addprefix tests/cluster/,\
  test_operator.py::test_a_training_shows_its_logs_and_hands_its_result_on \
  test_operator.py::test_a_failure_names_the_learner_and_the_reason_and_leaves_nothing \
  test_endings.py::test_whoever_ends_or_clears_a_task_ends_its_training)

.PHONY: test-matrix
test-matrix: $(MATRIX:%=test-matrix-%) ## unit tests, and some on the cluster, with other releases of Airflow and Kubernetes' client

.PHONY: $(MATRIX:%=test-matrix-%)
$(MATRIX:%=test-matrix-%): test-matrix-%: venv
	@if [ -z "$${KUBECONFIG:-}" ]; then
	  KUBECONFIG=$$($(BIN)/python -m dev.cluster up --images digits)
	  export KUBECONFIG
	fi
	echo "== Airflow $*"
	$(UV) venv --quiet --clear --python $(BIN)/python .venv-matrix/$*
	$(UV) pip install --quiet --no-config --python .venv-matrix/$*/bin/python --group test --group demo --editable . $(MATRIX_$*)
	.venv-matrix/$*/bin/pytest tests/unit $(MATRIX_CLUSTER) $(MATRIX_OMIT) $(MATRIX_OMIT_$*)

.PHONY: demo
demo: venv ## start cluster and Airflow, and run an example training in them
	@$(BIN)/python -m dev.demo

.PHONY: ui
ui: venv ## start Airflow with the example DAGs on the local cluster
	@$(BIN)/python -m dev.airflow

.PHONY: cluster-up
cluster-up: venv ## start the local Kubernetes cluster
	@$(BIN)/python -m dev.cluster up

.PHONY: cluster-down
cluster-down: venv ## stop it and clear what it left
	@$(BIN)/python -m dev.cluster down

.PHONY: wheel
wheel: venv ## build the wheel in dist/
	@$(UV) build --quiet --wheel --no-build-isolation --python $(BIN)/python --out-dir dist
	ls dist/*.whl

.PHONY: lock
lock: $(UV) ## pin what pyproject.toml asks for in requirements.lock (UPGRADE=1: the newest of everything)
	$(UV) pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade) \
	  --quiet --output-file requirements.lock
