# make pretrain   an environment, then XLNet on the default corpus: minutes on a laptop;
#                 RECIPE=elmo, bert, gpt, gpt2 or gpt3 trains another
# make finetune   a task for the XLNet of `make pretrain`, and the same from random weights
# make test       an environment, then lint, types and the tests
# make test-slow  the tests that take longer, and those of numbers, under the compiler of users
# make docs       the documentation as a site in build/site, by Sphinx in an environment of its own
# make reference  docs/reference/'s pages of keys, commands and functions, anew from the code
# make clean      forget the environments (not data/ and runs/)

PYTHON ?= python3
RECIPE ?= xlnet
VENV := .venv
BIN := $(VENV)/bin
DOCS := .venv-docs
# What holds for the quick compiler of `make test` is to hold for the one that users run.
NUMERIC := tests/modules tests/pretrain/objectives \
  tests/pretrain/training/test_train_state.py tests/pretrain/training/test_optimizer.py \
  tests/pretrain/training/test_schedules.py tests/pretrain/conversion/test_parity.py \
  tests/pretrain/distributed/test_layouts.py tests/pretrain/distributed/test_sharding.py \
  tests/pretrain/conversion/systems tests/pretrain/inference tests/finetune/tasks \
  tests/integration/test_resume.py tests/pretrain/test_evaluate.py

.PHONY: pretrain finetune test test-slow lint docs reference clean

pretrain: $(VENV)/runtime
	$(BIN)/python -m pretrain.main --config=configs/$(RECIPE).py

finetune: $(VENV)/runtime
	@test -f runs/xlnet-mini/config.json || { echo "runs/xlnet-mini is not there: first make pretrain"; exit 1; }
	$(BIN)/python -m finetune.main --config=configs/finetune/author.py --config.init=runs/xlnet-mini --workdir=runs/author
	$(BIN)/python -m finetune.main --config=configs/finetune/author.py --config.init=runs/xlnet-mini --config.random_init=True --workdir=runs/author-fresh
	$(BIN)/python -m finetune.results runs/author runs/author-fresh

test: lint
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-slow: $(VENV)/dev
	TEST_COMPILER=production $(BIN)/python -m pytest -n 2 -m slow
	TEST_COMPILER=production $(BIN)/python -m pytest -n 2 -m "not slow" $(NUMERIC)

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(DOCS)/sphinx
	$(DOCS)/bin/python -m sphinx --quiet --fail-on-warning --keep-going --conf-dir docs . build/site
	@echo "The site is in build/site/docs/index.html"

reference: $(VENV)/dev
	$(BIN)/python -m docs.build_reference

$(VENV)/python $(DOCS)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or later is needed; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.12 ..."; exit 1; }
	@echo "Creating $(@D) with $$($(PYTHON) -V)"
	$(PYTHON) -m venv $(@D)
	@touch $@

$(VENV)/runtime: $(VENV)/python requirements.txt
	@echo "Installing requirements.txt into $(VENV): a minute or two"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

$(VENV)/dev: $(VENV)/runtime requirements-dev.txt
	@echo "Installing requirements-dev.txt into $(VENV)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

$(DOCS)/sphinx: $(DOCS)/python requirements-docs.txt
	@echo "Installing requirements-docs.txt into $(DOCS)"
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-docs.txt
	@touch $@

clean:
	rm -rf $(VENV) $(DOCS)
