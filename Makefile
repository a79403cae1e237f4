# Two commands do everything on a fresh clone: `make demo` and `make test`.
# They need Python 3.11 or newer, make and a C compiler.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
BENCHED := docs/results/benchmarks_cpu_$(shell date +%F).md

.PHONY: help install demo check test test-long lint types pytest bench lock clean

help:
	@echo "make demo    install, import the embedded corpus, run a small search, show the leaderboard"
	@echo "make check   install, then ruff, mypy and the tests that start no process; a few minutes"
	@echo "make test    the same, and the tests of processes, servers and clusters"
	@echo "make test-long  the tests that make test leaves out: pages, notebooks, packages, rare faults of hosts and disks"
	@echo "make bench   the benchmarks, one line each, and a table in docs/results"
	@echo "make lock    update the lists of packages for nodes and services after a change of constraints.txt"
	@echo "make clean   remove the environment and all files of the demo"

install: $(READY)

# torch is installed first and by its exact version, so that no other package selects its build.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "memtune needs Python 3.11 or newer; name it with make PYTHON=/path/to/python3"; exit 1; }
	@echo "installing into $(VENV): about 2 GB, several minutes, once"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)
	$(BIN)/memtune demo
	@echo
	@echo "Every trial is in MLflow:  $(BIN)/memtune ui"

# mypy takes one core for minutes in a fresh clone, so it runs beside the tests.
check: lint
	$(MAKE) -j2 types pytest MARKS="-m 'not long and not cluster'"

test: lint
	$(MAKE) -j2 types pytest

test-long: $(READY)
	$(MAKE) pytest MARKS="-m long"

# worksteal: a module stays on one worker, with all that its fixtures made, until another has nothing left to do.
# Three workers for two cores: tests of processes and servers wait for almost half of their time.
pytest: $(READY)
	$(BIN)/pytest -n 3 --dist worksteal -rs $(MARKS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

bench: $(READY)
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks --markdown $(BENCHED)

# Packages of nodes and services by version and digest, for Linux on x86-64, with the CUDA build of torch.
LOCK := $(VENV)/lock/bin/uv pip compile --no-config --quiet --custom-compile-command "make lock" --no-annotate \
  --no-emit-index-url --generate-hashes --python-version 3.11 --python-platform x86_64-manylinux_2_28 -c constraints.txt

lock: $(READY)
	$(BIN)/python -m venv $(VENV)/lock
	$(VENV)/lock/bin/python -m pip install --quiet --disable-pip-version-check uv==0.13.8
	$(LOCK) --extra aws --extra gcp pyproject.toml --output-file clusters/requirements.txt
	$(LOCK) clusters/services/requirements.in --output-file clusters/services/requirements.txt

clean:
	rm -rf $(VENV) .memtune .mypy_cache .ruff_cache .pytest_cache
