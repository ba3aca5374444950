# Every target sets up what it needs: a machine with Python 3.11+, make and git is enough.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
WORKERS ?= 2

help: ## List the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml requirements/uv.txt requirements/dev.txt
	@echo "Setting up $(VENV) (once) ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Holdfast needs Python 3.11 or newer; set PYTHON=python3.X")'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --require-hashes -r requirements/dev.txt
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

setup: $(READY) ## Make the virtual environment (the other targets do it by themselves)

quickstart: $(READY) ## See the main job done, on this machine, in about a minute
	@$(BIN)/python examples/quickstart.py

test: $(READY) ## Run the test suite; builds its cluster first, once per machine
	@$(BIN)/python tools/cluster.py build > /dev/null || test -z "$$HOLDFAST_REQUIRE_TESTBED"
	@$(BIN)/python -m pytest -n $(WORKERS) -m "not long"

lint: $(READY) ## Linter and formatter, checking only
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(READY) ## Type checker, strict
	@$(BIN)/mypy
	@$(BIN)/mypy --strict tests/typing

testbed: $(READY) ## Build the test cluster, Helm, Gitea and their like (once per machine, about 20 minutes)
	@$(BIN)/python tools/cluster.py build

cluster: $(READY) ## Start a Kubernetes cluster with the operator, to play with
	@$(BIN)/python tools/cluster.py start

cluster-stop: $(READY) ## End that cluster and the operator
	@$(BIN)/python tools/cluster.py stop

demo-kubernetes: $(READY) ## See the operator at work on a real control plane, in about a minute
	@$(BIN)/python examples/kubernetes_demo.py

demo-gitops: $(READY) ## See drift become a pull request, a review and a heal, in a minute or two
	@$(BIN)/python examples/gitops_demo.py

check: lint types test ## What CI runs, no more and no less

check-long: $(READY) ## The long runs: kill points, many examples, every seeded bug put back
	@HOLDFAST_LONG=1 $(BIN)/python -m pytest -n $(WORKERS) -m long --timeout 3600
	@HOLDFAST_LONG=1 $(BIN)/python -m pytest -n $(WORKERS) tests/core tests/wire tests/apps/server/test_openapi.py tests/apps/server/test_gitops_openapi.py --timeout 3600

bench: $(READY) ## Measure, as ratios against a peer in the same run
	@$(BIN)/python -m bench

format: $(READY) ## Format and fix what the linter can fix
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format --quiet .

lock: $(READY) ## Resolve the locked requirements anew
	@echo 'uv' | $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 - -o requirements/uv.txt
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 pyproject.toml --extra server --extra kubernetes --extra gitops --extra postgres --group dev --group peers -o requirements/dev.txt
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 pyproject.toml --extra kubernetes --extra gitops --extra postgres -c requirements/dev.txt -o deploy/requirements.txt
	@echo 'hatchling' | $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 - -c requirements/dev.txt -o deploy/requirements-build.txt

clean: ## Remove the virtual environment and what tools left behind
	@rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis

.PHONY: testbed cluster cluster-stop demo-kubernetes demo-gitops help setup quickstart test lint types check check-long bench format lock clean
