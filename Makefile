# Every target works as the first command in a fresh clone, on a machine with Python 3.11 or newer, pip and make.
# What is installed is pinned, with hashes, in requirements/; stamps under $(VENV) make a second call quick.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=

BIN := $(VENV)/bin
PY := $(BIN)/python
PIP := $(PY) -m pip --quiet --disable-pip-version-check
STAMPS := $(VENV)/.stamps

.DEFAULT_GOAL := help
.PHONY: help install demo serve-demo test peers check format bench docs site screenshots pins clean

help:
	@echo 'make install      make $(VENV) with $(BIN)/twofold in it'
	@echo 'make demo         show the main job in one go, with the bundled example agent'
	@echo 'make serve-demo   the same, live in the browser: prints the link; ARGS=--open opens it'
	@echo 'make test         run the tests; ARGS="-k fold" passes words on to pytest'
	@echo 'make peers        run the tests against real agents, also those that make test leaves out'
	@echo 'make check        lint, formatting, types (mypy, pyright) and the direction of imports'
	@echo 'make format       put the formatting and the order of imports right'
	@echo 'make bench        run the benchmarks; ARGS passes words on'
	@echo 'make docs         write anew what the documentation takes from the code'
	@echo 'make site         build the documentation as a web site in build/site'
	@echo 'make screenshots  take the pictures of the documentation anew, with the Chromium of this machine'
	@echo 'make pins         pin the newest in requirements/, and what tests/node/package.json names'
	@echo 'make clean        remove everything that these targets made'
	@echo
	@echo 'PYTHON=python3.13 picks the interpreter (3.11 or newer), VENV=.venv-3.13 the folder.'

install: $(STAMPS)/install
	@echo 'Installed: $(BIN)/twofold'

demo: $(STAMPS)/install
	@$(BIN)/twofold demo $(ARGS)

serve-demo: $(STAMPS)/web
	@$(BIN)/twofold serve --demo $(ARGS)

test: $(STAMPS)/test $(STAMPS)/docs
	@$(PY) -m pytest $(ARGS)

peers: $(STAMPS)/test
	@TWOFOLD_PEERS_ALL=1 $(PY) -m pytest tests/peers $(ARGS)

check: $(STAMPS)/check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(wildcard src tests benchmarks examples)
	$(PY) -m tests.node_tools pyright --pythonpath $(PY)
	$(BIN)/lint-imports --no-logo

format: $(STAMPS)/check
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

bench: $(STAMPS)/test
	@$(PY) -m benchmarks $(ARGS)

docs: $(STAMPS)/test
	@$(PY) docs/generate_reference.py
	@$(PY) docs/generate_conversion_table.py
	@$(PY) -m tests.cli_reference > docs/cli.md.new && mv docs/cli.md.new docs/cli.md

site: $(STAMPS)/docs
	@rm -rf build/site
	@$(PY) docs/site/build.py build/site
	@echo 'Built: build/site/index.html'

screenshots: $(STAMPS)/test
	@$(PY) -m docs.screenshots

# Universal: one file serves every system and every Python from 3.11 on. Each file is resolved under the ones before it.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --upgrade
PEERS_LOCK = $(PY) -m tests.node_tools npm install --package-lock-only --omit-lockfile-registry-resolved --prefix
pins: $(STAMPS)/test
	@$(PIP) install --require-hashes -r requirements/pins.txt
	$(COMPILE) --group pins -o requirements/pins.txt
	$(COMPILE) --group build -o requirements/build.txt
	$(COMPILE) pyproject.toml -o requirements/runtime.txt
	$(COMPILE) pyproject.toml --group test -c requirements/runtime.txt -o requirements/test.txt
	$(COMPILE) pyproject.toml --extra web -c requirements/test.txt -o requirements/web.txt
	$(COMPILE) pyproject.toml --group dev -c requirements/test.txt -o requirements/check.txt
	$(COMPILE) --group docs -c requirements/check.txt -o requirements/docs.txt
	$(COMPILE) --group python-sdk-rc -o requirements/python-sdk-rc.txt
	$(subst 3.11,3.12,$(COMPILE)) --group peers-fast-agent -o requirements/peers-fast-agent.txt
	$(COMPILE) --group peers-hermes -o requirements/peers-hermes.txt
	$(PY) -m tests.node_tools npm install --package-lock-only
	$(PEERS_LOCK) ../peers/claude
	$(PEERS_LOCK) ../peers/gemini
	$(PEERS_LOCK) ../peers/opencode

clean:
	rm -rf .venv .venv-3.* build dist tests/node/node_modules tests/node/.install.lock
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment that is there already is used as it is; one made by uv, say, has no pip yet.
# Where ensurepip is packaged apart (Debian), the pip beside $(PYTHON) puts the pinned one in.
$(STAMPS)/venv: requirements/build.txt
	@test -x $(PY) || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "twofold needs Python 3.11 or newer, and '$(PYTHON)' is not that: $$($(PYTHON) --version 2>&1 | head -n 1)"; \
	    echo "Name another one: make PYTHON=python3.13 $(MAKECMDGOALS)"; exit 1; } >&2
	@test -x $(PY) || $(PYTHON) -m venv --without-pip $(VENV)
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PY) -m ensurepip >/dev/null 2>&1 || \
	    $(PYTHON) -m pip --python $(PY) --quiet install --require-hashes -r requirements/build.txt
	@$(PIP) install --require-hashes -r requirements/build.txt
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/install: $(STAMPS)/venv requirements/runtime.txt pyproject.toml
	@$(PIP) install --require-hashes -r requirements/runtime.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(STAMPS)/web: $(STAMPS)/install requirements/web.txt
	@$(PIP) install --require-hashes -r requirements/web.txt
	@touch $@

$(STAMPS)/test: $(STAMPS)/install requirements/test.txt
	@$(PIP) install --require-hashes -r requirements/test.txt
	@touch $@

$(STAMPS)/check: $(STAMPS)/test requirements/check.txt
	@$(PIP) install --require-hashes -r requirements/check.txt
	@touch $@

$(STAMPS)/docs: $(STAMPS)/test requirements/docs.txt
	@$(PIP) install --require-hashes -r requirements/docs.txt
	@touch $@
