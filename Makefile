# `make demo` and `make test` need Python 3.11, git and make, and install the rest in .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help setup demo test test-full torture bench results-shortrun results-shortrun-cifar10 results-fid \
        results-stability results-precision results-precision-training results-defense results-defense-digits results-defense-cifar10 \
        results-defense-imagenet results-density \
        results-density-toys results-density-digits results-density-cifar10 results-troubleshooting face docs check format

help:
	@echo "make demo    shows the three lengths of chain on the embedded digits, and writes a page (minutes)"
	@echo "make test    runs the whole test suite"
	@echo "make test-full   runs 20 updates of every experiment of the paper at full size (hours; ONLY=celeba: some)"
	@echo "make torture   tests kills, damage, fuzzing and hostile files by the thousand (an hour); docs/reliability.md"
	@echo "make bench   compares the speed of Langevin sampling with the plain PyTorch loop and torchebm"
	@echo "make results-shortrun   measures docs/results/shortrun.md (can be resumed)"
	@echo "make results-defense    measures docs/results/defense.md; -digits, -cifar10 and -imagenet measure one part each"
	@echo "make results-density    measures docs/results/density.md; -toys, -digits and -cifar10 measure one part each"
	@echo "make docs    builds the documentation in site/"
	@echo "make check   checks lint, formatting, types, and the imports between rooms"
	@echo "make setup   only installs the package and its tools in .venv"

setup: .venv/installed

.venv/installed: pyproject.toml requirements.lock
	@echo "setting up .venv (PyTorch is large: this takes some minutes the first time)"
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint requirements.lock --editable '.[dev]'
	$(BIN)/pip install --quiet --constraint requirements.lock --no-deps torchattacks
	@touch $@

demo: setup
	$(BIN)/ebmlife demo

test: setup
	$(BIN)/pytest --cov --cov-report=term:skip-covered --cov-fail-under=95

test-full: setup
	$(BIN)/pytest -m slow -s -k '$(ONLY)' tests/test_full_size.py

# Every count has a variable: make torture KILLS=50. ONLY=kills runs one test.
torture: setup
	PYTHONPATH=tests $(BIN)/python -m torture $(if $(SEED),--seed $(SEED)) $(if $(JOBS),--jobs $(JOBS)) \
	  $(if $(CASE),--case $(CASE)) $(if $(ONLY),--only $(ONLY)) $(if $(WRITE),--write) \
	  $(foreach test,kills damages tampers calls files hostile requests disks rivals,$(call count,$(test)))
count = $(if $($(shell echo $(1) | tr a-z A-Z)),--$(1) $($(shell echo $(1) | tr a-z A-Z)))

bench: setup
	$(BIN)/pip install --quiet --constraint requirements.lock --editable '.[bench]'
	$(BIN)/ebmlife bench

results-shortrun: setup
	$(BIN)/python results/shortrun.py

results-shortrun-cifar10: setup
	$(BIN)/python results/shortrun_cifar10.py

results-fid: setup
	$(BIN)/python results/fid.py

results-stability: setup
	$(BIN)/python results/stability.py digits
	$(BIN)/python results/stability.py cifar10

results-defense: results-defense-digits results-defense-cifar10 results-defense-imagenet

results-defense-digits: setup
	$(BIN)/python results/defense.py digits

results-defense-cifar10: setup
	$(BIN)/python results/defense.py cifar10

results-defense-imagenet: setup
	$(BIN)/python results/imagenet.py

results-density: results-density-toys results-density-digits results-density-cifar10

results-density-toys: setup
	$(BIN)/python results/density_toys.py

results-density-digits: setup
	$(BIN)/python results/density_digits.py

results-density-cifar10: setup
	$(BIN)/python results/density_cifar10.py

results-precision: setup
	$(BIN)/python results/precision.py

results-precision-training: setup
	$(BIN)/python results/precision.py train

results-troubleshooting: setup
	$(BIN)/python results/troubleshooting.py

face: setup
	$(BIN)/python results/face.py

docs: setup
	$(BIN)/pip install --quiet --constraint requirements.lock --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet  # a notice about a later version of mkdocs
	@echo "site/index.html"

check: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
