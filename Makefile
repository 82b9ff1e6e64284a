# КПД: the commands of the README. Each makes the environment it needs and is quick the second time.

EXP ?= sparse_t5_75
PYTHON ?= python3
BIN := .venv/bin

.PHONY: run setup setup-parity test test-slow check format

# One experiment; more flags through ARGS, as in ARGS="--seed=1 --budget=90s".
run: setup
	$(BIN)/python -m experiments.launch --exp=$(EXP) $(ARGS)

setup: .venv/kpd.stamp

.venv/kpd.stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test]"
	touch $@

# What slow tests need further: torch and transformers as references, and what runs notebooks.
setup-parity: .venv/kpd-parity.stamp

.venv/kpd-parity.stamp: .venv/kpd.stamp
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test,parity,notebooks]"
	touch $@

test: setup
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

# The slow proofs: kills, several processes, live references.
test-slow: setup-parity
	$(BIN)/python -m pytest -m slow

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy experiments models sparsity fff launch
	$(MAKE) test

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
