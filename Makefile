# One runner for everything. `make` alone lists the targets; each is described by the comment behind its name.
# Needs nothing but make and Python 3.11 or newer with venv: no compiler, no root, no other tool.

PYTHON ?=
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LOCKED := requirements/dev.txt
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest
# Enough processes to use the machine, few enough that tests which start their own processes still get a turn.
PARALLEL := -n auto --maxprocesses 4
TYPED := src $(wildcard tests/typing)

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## list these targets
	@echo "make TARGET, where TARGET is one of:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile
	@echo "PYTHON=python3.12 chooses the interpreter of setup; ARGS=... is handed on, as in: make demo ARGS='--for 15 --json'"

.PHONY: setup
setup: $(READY) ## create .venv with everything pinned by hash (repeated runs cost nothing)

# The stamp is written last, so an interrupted setup is taken up again. An environment whose interpreter is gone is made anew.
$(READY): $(LOCKED) pyproject.toml tools/find_python.sh
	@python=$$(PYTHON="$(PYTHON)" sh tools/find_python.sh) || exit 1; \
	if ! $(BIN)/python -c 'import pip' >/dev/null 2>&1; then \
	  echo "setup: creating $(VENV) with $$($$python --version)"; \
	  rm -rf $(VENV); \
	  $$python -m venv $(VENV) || { echo "setup: that Python cannot make a venv; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }; \
	fi
	@echo "setup: installing $(LOCKED) (pinned and hashed, wheels only)"
	@$(PIP) --require-hashes --only-binary :all: -r $(LOCKED)
	@$(PIP) --no-deps --no-build-isolation --no-index --editable .
	@touch $(READY)
	@echo "setup: ready, $(BIN)/mulligan"

.PHONY: demo
demo: $(READY) ## watch jobs fail, back off, retry and recover, until Ctrl-C
	@$(BIN)/mulligan demo $(ARGS)

.PHONY: test
test: check ## everything that must hold: check, then all tests but scale and torture
	@$(PYTEST) $(PARALLEL) $(ARGS)

.PHONY: check
check: $(READY) ## form, lint, types, layers, and the tidy test (lengths, clocks, forbidden calls)
	@$(BIN)/ruff format --check --output-format concise . || { echo "check: run 'make format'" >&2; exit 1; }
	@$(BIN)/ruff check --output-format concise .
	@$(BIN)/mypy $(TYPED)
	@$(BIN)/lint-imports --no-logo
	@$(PYTEST) --quiet tests/tidy

.PHONY: format
format: $(READY) ## bring the code into form, and mend what can be mended by itself
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format .

.PHONY: docs
docs: $(READY) ## the documentation: links, examples, and that nothing public is left out
	@$(PYTEST) tests/docs $(ARGS)

.PHONY: scale
scale: $(READY) ## tests with large amounts of work
	@$(PYTEST) -m scale --timeout 1800 $(ARGS)

.PHONY: test-matrix
test-matrix: $(READY) ## the store tests on PostgreSQL 15 and 18, Redis 7 and PgBouncer (installs what it can, as root)
	@sh tools/matrix.sh "$(PYTEST)"

.PHONY: torture
torture: $(READY) ## tests that kill and pause processes and play long random histories
	@$(PYTEST) -m torture --timeout 3600 $(ARGS)

.PHONY: bench
bench: $(READY) ## minutes: every store beside its bare batch loop, graphile-worker, pgqueuer and BullMQ (node for two of them)
	@$(BIN)/python -m benchmarks.peers --best $(ARGS)

.PHONY: bench-all
bench-all: $(READY) ## beside every peer, each in an environment of its own below .bench/ (an hour; needs node for two of them)
	@$(BIN)/python -m benchmarks.peers $(ARGS)

.PHONY: storms
storms: $(READY) ## outages, mass failures and floods under virtual time: figures and the plots of docs/guide/storms.md
	@$(BIN)/python -m benchmarks.storms --out docs/guide/img $(ARGS)

.PHONY: soak
soak: $(READY) ## a steady load for a long time on every store: memory, files and tables must come to a steady size
	@$(BIN)/python -m benchmarks.soak $(ARGS)

.PHONY: coverage
coverage: $(READY) ## branch coverage of all tests; the policy must be covered whole
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest --quiet $(ARGS)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report
	@$(BIN)/coverage report --include 'src/mulligan/policy/*' --fail-under 100

.PHONY: mutation
mutation: $(READY) ## change the policy in every small way; the tests must notice (takes a while)
	@$(PIP) --require-hashes --only-binary :all: -r requirements/mutation.txt
	@$(BIN)/mutmut run $(ARGS)
	@$(BIN)/mutmut results

.PHONY: planted
planted: $(READY) ## plant every bug of tests/planted in a copy of the engine and hunt it; prints the score (half an hour)
	@$(BIN)/python -m tests.planted $(ARGS)

.PHONY: lock
lock: ## rewrite requirements/*.txt after a change of pyproject.toml (needs uv)
	@sh tools/lock.sh

.PHONY: clean
clean: ## remove all that make has made
	@rm -rf $(VENV) .bench build dist mutants .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
