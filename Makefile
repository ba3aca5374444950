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

quickstart: $(READY) ## See the main job done, on this machine, in about a minute (STAY=1: and look at its page)
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

node: $(READY) ## Start a cluster with a real node, where pods run, to play with (Linux, root)
	@$(BIN)/python tools/node.py start

node-stop: $(READY) ## End that node and everything in it
	@$(BIN)/python tools/node.py stop

image: $(READY) ## Build Holdfast's own image, without a container engine: dist/holdfast.tar
	@$(BIN)/python tools/image.py registry.example/holdfast:0.1.0 dist/holdfast.tar

demo-kubernetes: $(READY) ## See the operator at work on a real control plane, with real pods where possible
	@$(BIN)/python examples/kubernetes_demo.py

demo-gitops: $(READY) ## See drift become a pull request, a review and a heal, in a minute or two (STAY=1: and look at its page)
	@$(BIN)/python examples/gitops_demo.py

client-test: $(READY) ## The JavaScript client: its types, and its tests on a real server (needs Node 20 or newer)
	@if node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2> /dev/null; then \
	  cd clients/javascript && { test node_modules/.package-lock.json -nt package-lock.json || npm ci --silent; } && npm test --silent; \
	else \
	  echo "SKIPPED: the JavaScript client was not tested, for there is no Node 20 or newer on PATH (HOLDFAST_REQUIRE_NODEJS=1 makes that a failure)" >&2; \
	  test -z "$$HOLDFAST_REQUIRE_NODEJS"; \
	fi

check: lint types test client-test ## What CI runs, no more and no less

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
	@rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis clients/javascript/node_modules clients/javascript/types

.PHONY: testbed cluster cluster-stop node node-stop image demo-kubernetes demo-gitops help setup quickstart test lint types client-test check check-long bench format lock clean
