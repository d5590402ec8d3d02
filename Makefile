# `make check` runs the main job, `make test` the test suite, `make docs` renders the documentation into site/, and
# `make check-all` does everything that takes long; each sets itself up first. PYTHON chooses the interpreter.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt
# At least this many tests must pass, so that a run that skipped or lost tests is not green.
TESTS_AT_LEAST := 4500

# What these tests do, the commands of `check-all` do too, and say more.
IN_COMMANDS := $(addprefix --deselect tests/proofs/, \
	test_theorems.py::test_both_solvers_prove_everything \
	test_pool_refinement.py::test_both_solvers_prove_everything \
	test_explore.py::test_default_bounds_are_exhausted_and_nothing_is_found \
	test_explore_progress.py::test_default_engines_are_exhausted_and_nothing_is_found \
	test_mutants.py::test_no_mutant_survives \
	test_vacuity.py::test_every_conjunct_is_needed)

.PHONY: check check-all determinism docs lint test

check: .venv/installed-engine
	$(BIN)/vosti check

test: .venv/installed-dev
	$(BIN)/pytest --numprocesses auto --dist loadfile -m "not slow" --at-least $(TESTS_AT_LEAST)

# Two solvers, every small world, every mutant; docs/ci.md has the time of each.
check-all: .venv/installed-dev
	$(BIN)/vosti prove spec refinement --solver both --stats
	$(BIN)/vosti prove forward --fresh
	$(BIN)/vosti prove explore
	$(BIN)/vosti prove --mutants
	$(BIN)/pytest --numprocesses auto --dist loadfile -m slow --durations 0 $(IN_COMMANDS)

# The suites of docs/determinism.md that take long, on both checkpoints. What was interrupted is continued.
determinism: .venv/installed-dev
	for suite in paper extended; do for model in tiny-gemma3 tiny-llama3; do \
	    $(BIN)/vosti determinism $$model --backend cpu --suite $$suite --report determinism-results || exit; done; done

docs: .venv/installed-dev
	$(BIN)/pytest -q --doctest-modules spec
	rm -rf site
	$(BIN)/python docs/site/render.py site

lint: .venv/installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "vosti needs Python 3.11 or newer, and '$(PYTHON)' is not: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

.venv/installed-engine: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) -e '.[engine]'
	touch $@

.venv/installed-dev: .venv/installed-engine
	$(PIP) -e '.[engine,gpu,proofs,report,dev]'
	touch $@
