# Two commands do everything on a fresh clone: `make demo` and `make test`.
# Python 3.11 or newer, make and a compiler are all that must be there before.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
STUDY  := jobs/studies/demo.toml
BENCHED := docs/results/benchmarks_cpu_$(shell date +%F).md

.PHONY: help install demo test lint types bench clean

help:
	@echo "make demo    install, import the embedded corpus, run a small search, show the leaderboard"
	@echo "make test    install, then ruff, mypy and pytest"
	@echo "make bench   the benchmarks, one line each, and a table in docs/results"
	@echo "make clean   remove the environment and everything the demo wrote"

install: $(READY)

# torch comes first and by its exact version, so that nothing else chooses its build.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "memtune needs Python 3.11 or newer; say which with make PYTHON=/path/to/python3"; exit 1; }
	@echo "installing into $(VENV): about 2 GB and some minutes, once"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)
	$(BIN)/memtune corpus demo
	$(BIN)/memtune search $(STUDY)
	$(BIN)/memtune compare --corpus grammar
	@echo
	@echo "Every trial is in MLflow:  $(BIN)/memtune ui"

test: $(READY) lint types
	$(BIN)/pytest -n 2 --dist worksteal

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

bench: $(READY)
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks --markdown $(BENCHED)

clean:
	rm -rf $(VENV) .memtune .mypy_cache .ruff_cache .pytest_cache
