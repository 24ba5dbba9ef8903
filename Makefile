# make demo    seven care units federate on this machine; ends by itself with a table
# make test    style, types, import directions, all tests (quick ones four at a time, slow ones two)
# make docs    write the generated pages of docs/ anew
# make bench   cost of the wire against bare CURVE sockets
# make chaos   twelve centers, 200 random faults, some minutes; its figures are in docs/reliability.md
# make fuzz    the codec under coverage-guided fuzzing, a minute
# make services  install what some tests start by themselves: mosquitto, Slurm, Chromium (root, apt-get)
#
# Python 3.11 or newer; another one than python3: make demo PYTHON=python3.12

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
DEMO := demo-federation

.PHONY: venv services test lint docs demo bench chaos fuzz clean

venv: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is $$($(PYTHON) --version 2>&1), needed: 3.11 or newer (make PYTHON=…)"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -c constraints.txt -e ".[dev]"
	@touch $@

services:
	@tests/services.sh

test: lint
	$(BIN)/pytest -m "not slow" -n 4 --dist loadfile
	$(BIN)/pytest -m slow -n 2 --dist loadfile

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

demo: venv
	rm -rf $(DEMO)
	$(BIN)/python examples/rhc/prepare.py --out $(DEMO)
	$(BIN)/abps launch local $(DEMO)

docs: venv
	$(BIN)/python -m abps_node.cli.reference docs
	$(BIN)/python docs/generate.py

bench: venv
	$(BIN)/python bench/node_wire.py

chaos: venv
	$(BIN)/python -m tests.chaos.campaign

fuzz: venv
	$(BIN)/pip install -c constraints.txt -e ".[fuzz]"
	$(BIN)/python -m tests.fuzz.seeds .fuzz/corpus
	$(BIN)/python -m tests.fuzz.codec_frames -max_total_time=60 -artifact_prefix=.fuzz/ .fuzz/corpus

clean:
	rm -rf .venv .fuzz $(DEMO)
