# Two commands: `make demo` and `make test`. Both install what they need into .venv first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO_STAMP := $(VENV)/.installed-demo
STAMP := $(VENV)/.installed

# Long runs: how many of each are tried, and where progress, reproducers and the table go.
SOAK_ARCHITECTURES ?= 10000
SOAK_KILLS ?= 1000
SOAK_FILES ?= 100000
SOAK_SEED ?= 0
SOAK_PROCESSES ?= 1
SOAK_OUT ?= soak-out

.PHONY: demo test lint format docs examples bench soak release-check clean

demo: $(DEMO_STAMP)
	$(BIN)/tangentlab demo --out demo-out

test: $(STAMP) lint
	$(BIN)/python -m pytest -n 2 -q -m "not soak"

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP)
	$(BIN)/mkdocs build --strict

examples: $(STAMP)
	$(BIN)/python -m docs.build_examples

bench: $(STAMP)
	$(BIN)/python -m benchmarks

soak: $(STAMP)
	wrong=0; \
	OMP_NUM_THREADS=1 $(BIN)/python -m soak --architectures $(SOAK_ARCHITECTURES) --kills $(SOAK_KILLS) \
		--files $(SOAK_FILES) --seed $(SOAK_SEED) --processes $(SOAK_PROCESSES) --out $(SOAK_OUT) || wrong=1; \
	$(BIN)/python -m pytest -q -m soak || [ $$? -eq 5 ] || wrong=1; \
	exit $$wrong

release-check: $(STAMP)
	$(BIN)/python -m release

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
	rm -rf $(VENV) demo-out release-out soak-out site .bench-*
