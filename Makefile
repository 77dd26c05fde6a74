# Every job of the project is one target here; continuous integration runs these and nothing else.
PYTHON ?= python3
ENVIRONMENT := .venv
BIN := $(ENVIRONMENT)/bin
STAMP := $(ENVIRONMENT)/.installed
PYTEST_OPTIONS ?=

# The workers of pytest-xdist share the cores; with their own thread pools, numeric libraries slow each other down.
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help environment compare test lint coverage clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

environment: $(STAMP) ## make .venv with the pinned stack; nothing to do while it is current

compare: $(STAMP) ## run every case on every subject and write the report
	$(BIN)/pytest -n auto $(PYTEST_OPTIONS)

test: $(STAMP) ## test the suite itself, planted faults included
	$(BIN)/pytest tests -n auto $(PYTEST_OPTIONS)

lint: $(STAMP) ## style, types and layering
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest -q tests/test_layering.py

coverage: $(STAMP) ## as test, with the lines and branches that no test reaches
	$(BIN)/coverage run -m pytest tests -n auto $(PYTEST_OPTIONS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

clean: ## remove the environment and all caches; runs in reports/ stay
	rm -rf $(ENVIRONMENT) .mypy_cache .pytest_cache .ruff_cache .coverage .coverage.* *.egg-info

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(ENVIRONMENT)
	$(BIN)/pip install --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)
