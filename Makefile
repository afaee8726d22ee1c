# The two commands are `make run` and `make test`; both do all set-up of their own. `make help` lists the rest.
.DEFAULT_GOAL := help
.PHONY: help run pipeline-demo test soak check format docs bench ext debug sanitize clean

VENV := .venv
BIN := $(VENV)/bin
SOURCES := setup.py pyproject.toml $(wildcard ctrlchan/*.pyx ctrlchan/channel/*/*.p[xy][dx] ctrlchan/_wire/*)
BENCH_ARGS ?=
SECONDS ?= 600
# Tests that start no process.
SANITIZED := tests/unit/codec $(patsubst %,tests/unit/channel/test_%.py,entries exchange link shared_memory) \
  $(patsubst %,tests/conformance/test_%.py,fuzz golden malformed)

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 15

run: $(VENV)/.run  ## install what is missing, then push 100,000 partitions to embedded brokers and read them back
	$(BIN)/ctrlchan demo

# First what starts and kills processes, with the machine for itself; then the rest, in two processes.
test: $(VENV)/.test  ## install what is missing, then run every test, or PYTEST_ARGS (real Kafka: Java 17 and Maven)
ifdef PYTEST_ARGS
	$(BIN)/python -m pytest $(PYTEST_ARGS)
else
	$(BIN)/python -m pytest tests/acceptance tests/fault tests/kafka; status=$$?; \
	  $(BIN)/python -m pytest tests/conformance tests/spark tests/unit -n 2 --dist loadfile && exit $$status
endif

pipeline-demo: $(VENV)/.spark  ## install what is missing, then let the report find a slow broker and a stale one
	$(BIN)/ctrlchan pipeline demo --output build/pipeline-demo --overwrite

soak: $(VENV)/.test  ## push under random faults for SECONDS (600): nothing may be lost, stay or grow
	$(BIN)/python -m tests.soak $(SECONDS)

check: $(VENV)/.check  ## formatting, lints, types and the arrows between the rooms
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.check  ## let ruff format and mend what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.docs  ## build the guides and the API reference into build/docs; warnings are errors
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs
	@echo "open build/docs/index.html"

bench: $(VENV)/.test  ## measure codec and channel beside their peers; writes bench/RESULTS.md's tables
	$(BIN)/python -m bench $(BENCH_ARGS)

ext: $(VENV)/.check  ## build the extension again in place
	$(BIN)/python setup.py -q build_ext --inplace

debug: $(VENV)/.check  ## build the extensions with bounds checks and line tracing, and run their tests on them
	CTRLCHAN_DEBUG=1 $(BIN)/python setup.py -q build_ext --inplace --force
	$(BIN)/python -m pytest tests/unit/codec tests/unit/channel tests/conformance; status=$$?; \
	  $(BIN)/python setup.py -q build_ext --inplace --force; exit $$status

# Java and other children must not have the sanitizers' libraries; objects must not come from Python's arenas.
sanitize: $(VENV)/.check  ## build the extensions with gcc's sanitizers, and run tests of codec and books on that build
	CTRLCHAN_SANITIZE=1 $(BIN)/python setup.py -q build_ext --inplace --force
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" PYTHONMALLOC=malloc \
	  ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
	  $(BIN)/python -m pytest $(SANITIZED); status=$$?; \
	  $(BIN)/python setup.py -q build_ext --inplace --force; exit $$status

clean:  ## remove what was built (not the virtual environment)
	rm -rf build dist *.egg-info ctrlchan/*.so ctrlchan/channel/*/*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks

# Each stamp is a superset of the one before it, so `make run` does not wait for the tests' packages.
$(VENV)/.python:
	@sh tools/venv.sh $(VENV)
	@touch $@

$(VENV)/.run: $(VENV)/.python $(SOURCES)
	@echo "installing ctrlchan and what it needs into $(VENV) (once; a minute or two)"
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar on -e '.[demo]'
	@touch $@

$(VENV)/.spark: $(VENV)/.run
	@echo "installing Spark, and a Java for it, into $(VENV) (once; a few hundred megabytes)"
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar on -e '.[demo,spark]'
	@touch $@

$(VENV)/.test: $(VENV)/.spark
	@echo "installing what the tests need into $(VENV) (once)"
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar on -e '.[demo,spark,test]'
	@touch $@

$(VENV)/.docs: $(VENV)/.spark
	@echo "installing what the documents need into $(VENV) (once)"
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar on 'furo>=2024.8' 'matplotlib>=3.9' 'myst-parser>=4' 'sphinx>=8'
	@touch $@

$(VENV)/.check: $(VENV)/.test
	@echo "installing what the checks need into $(VENV) (once)"
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar on -e '.[demo,spark,test,check]'
	@touch $@
