# Two commands: `make demo` and `make test`. Both install what they need into .venv first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO_STAMP := $(VENV)/.installed-demo
STAMP := $(VENV)/.installed

.PHONY: demo test lint format docs examples bench clean

demo: $(DEMO_STAMP)
	$(BIN)/tangentlab demo --out demo-out

test: $(STAMP) lint
	$(BIN)/python -m pytest -n 2 -q

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP)
	$(BIN)/mkdocs build --strict

examples: $(STAMP)
	$(BIN)/python -m docs.build_examples

bench: $(STAMP)
	$(BIN)/python -m benchmarks

$(STAMP): requirements.txt pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

# The demo needs the dependencies only; everything else adds the development tools to the same environment.
$(STAMP): $(DEMO_STAMP)
$(DEMO_STAMP): requirements-demo.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-demo.txt
	touch $@

clean:
	rm -rf $(VENV) demo-out site .bench-*
