# The two commands of a newcomer are `make quickstart` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Else every process compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: quickstart test test-as-user test-all check docs references chaos gpu format release clean help

help:
	@echo "make quickstart    install into .venv, distil a real model, and show the comparison"
	@echo "make test          run the test suite, all but what is slow"
	@echo "make test-as-user  the commands of every page, examples, notebook, wheel, exports, and pages in Chromium"
	@echo "make test-all      every test that needs no GPU, slow ones too"
	@echo "make check         lint, format and types"
	@echo "make docs          the documentation site, in build/site; warnings are errors"
	@echo "make references    the pages made of docstrings, the schema, the tasks, the methods and the files"
	@echo "make release       dist/ with the version's wheel, checked, and tried in a new environment"
	@echo "make gpu           what a GPU does for limbeck, in nine minutes and from the source tree; DRY=1 needs none"
	@echo "make chaos         kills, bad inputs, memory and two processes, measured; an hour or two of two cores"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "limbeck needs Python 3.11 or newer; say which with: make PYTHON=python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)

# torch goes first and by range, so that a CPU build found by pip is kept. Each stamp is as old as its install.
$(VENV)/.quickstart: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "torch>=2.9,<2.14"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[quickstart]"
	@touch $@

# pip would compile all modules on one core. So those of torch are compiled while it installs the rest, and the rest
# after it by all cores.
$(VENV)/.dev: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check "torch>=2.9,<2.14"
	@$(BIN)/python -m compileall -q $(VENV)/lib > /dev/null 2>&1 & \
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -e ".[dev]"
	@$(BIN)/python -m compileall -q -j 0 $(VENV)/lib > /dev/null 2>&1 || true
	@touch $@

quickstart: $(VENV)/.quickstart
	$(BIN)/limbeck quickstart

# As many processes as cores. Each begins with a half of the files, whose tests share what they make; the first done helps.
test: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto --dist worksteal

# The site is built and looked at by `make docs`.
test-as-user: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto --dist worksteal -m slow --ignore tests/docs/test_site.py \
		tests/docs tests/examples tests/export tests/packaging tests/report

test-all: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not gpu"

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.dev
	$(BIN)/python -m pytest --noconftest -m slow tests/docs/test_site.py

references: $(VENV)/.dev
	$(BIN)/python docs/hooks/method_lists.py
	$(BIN)/python docs/hooks/recipe_reference.py
	$(BIN)/python docs/hooks/task_reference.py
	$(BIN)/python docs/hooks/map_of_files.py
	$(BIN)/python docs/hooks/python_reference.py

chaos: $(VENV)/.dev
	$(BIN)/python benchmarks/chaos_kills.py --kills 130 --seed 1 --output benchmarks/results/chaos_kills.json
	$(BIN)/python -m benchmarks.chaos_inputs --inputs 5200 --seed 1 --output benchmarks/results/chaos_inputs.json
	$(BIN)/python benchmarks/streaming_memory.py --output benchmarks/results/streaming_memory.json
	$(BIN)/python benchmarks/two_processes.py --rounds 5 --output benchmarks/results/two_processes.json

# By the packages of PYTHON; WHEELS is a folder with wheels of those that it lacks.
gpu:
	$(PYTHON) -m benchmarks.gpu $(if $(DRY),--dry) $(if $(WHEELS),--wheels "$(WHEELS)")

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

release: $(VENV)/.dev
	.ci/release

clean:
	rm -rf $(VENV) build dist *.egg-info src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
