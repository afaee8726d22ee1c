# The two commands are `make run` and `make test`; both do all set-up of their own. `make help` lists the rest.
.DEFAULT_GOAL := help
.PHONY: help run cluster unit acceptance pipeline-demo test kafka-tests soak chaos random-requests simulate fuzz check format docs bench instructions ext debug coverage sanitize clean

# Commands start hundreds of processes with the same modules: byte code is kept, also where it is not otherwise.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
SOURCES := setup.py pyproject.toml $(wildcard ctrlchan/*.pyx ctrlchan/_c/* ctrlchan/zookeeper/*.pyx ctrlchan/channel/*/*.p[xy][dx] ctrlchan/_wire/* \
  ctrlchan/server/*.p[xy][dx] ctrlchan/server/*/* ctrlchan/broker/*/*.p[xy][dx] ctrlchan/broker/*/*.h ctrlchan/broker/handlers/_fetching/* \
  ctrlchan/controller/*/*/*.p[xy][dx] \
  tests/simulation/*.pyx tests/unit/server/*.pyx)
# Stamps: what is installed, for the main job, for everything and for all tests. A target that runs tests needs no other
# target to have run before: tests/unit/test_installed_packages.py compares what is installed with what is imported.
CHANNEL := $(VENV)/.channel
RUN := $(VENV)/.run
ALL_TESTS := $(RUN) $(VENV)/.unit $(VENV)/.spark
BENCH_ARGS ?=
SECONDS ?= 600
JOBS ?= 1
COVERED := tests/simulation tests/unit/server tests/unit/broker/replica tests/unit/broker/log tests/unit/locks
# Tests of Python alone, in the folders of which `make debug` runs the rest.
WITHOUT_EXTENSIONS := $(patsubst %,tests/unit/broker/coordinator/test_%.py,joining model offsets pending_markers \
  pending_markers_model purgatory rebalance static_members timing_wheel transactional_offsets) \
  $(patsubst %,tests/unit/broker/coordinator/transaction/test_%.py,coordinator late_ends leadership model \
  transaction ways) $(patsubst %,tests/unit/broker/test_%.py,config_keys listener_configs log_configs \
  producer_ids) tests/unit/broker/authorizer/test_needs.py \
  $(patsubst %,tests/conformance/test_%.py,group_coordinator schema settings)
# Tests that start no process.
SANITIZED := tests/unit/codec $(patsubst %,tests/unit/channel/test_%.py,entries fast_path connection_protocol shared_memory) \
  $(patsubst %,tests/conformance/test_%.py,fuzz golden malformed) tests/unit/zookeeper/test_state_decoder.py \
  tests/unit/broker/log tests/unit/server tests/simulation/test_day.py tests/unit/broker/replica \
  $(patsubst %,tests/unit/broker/quota/test_%.py,client_quotas quota_callback quota_changes entities) \
  $(patsubst %,tests/unit/broker/%.py,groups/test_messages test_metadata_messages test_bad_input)

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 15

run: $(CHANNEL)  ## install what is missing, then push 100,000 partitions to embedded brokers and read them back
	$(BIN)/ctrlchan demo

cluster: $(RUN)  ## install what is missing, then start a whole cluster and let a Kafka client use it
	$(BIN)/ctrlchan cluster --demo --session-timeout 3

test: $(ALL_TESTS)  ## install what is missing, then run every test, or PYTEST_ARGS (real Kafka: Java 17 and Maven)
	@$(BIN)/python -m tests.kafka.class_archive
ifdef PYTEST_ARGS
	@$(BIN)/python -m tests.spark.class_archive
	$(BIN)/python -m pytest $(PYTEST_ARGS)
else
	$(BIN)/python -m tests
endif

unit: $(RUN) $(VENV)/.unit  ## install what is missing, then run the unit tests (no Java, no Spark; two minutes)
	$(BIN)/python -m pytest tests/unit tests/simulation -n 2 --dist loadfile

pipeline-demo: $(RUN) $(VENV)/.spark  ## install what is missing, then let the report find a slow broker and a stale one
	$(BIN)/ctrlchan pipeline demo --output build/pipeline-demo --overwrite

acceptance: $(ALL_TESTS)  ## the long tests: handovers and histories of the controller, jobs that are killed on a Spark cluster
	$(BIN)/python -m pytest tests -m long

kafka-tests: $(ALL_TESTS)  ## Kafka's own integration tests against our brokers: all of the list, or CLASSES; JOBS (1) at a time
	$(BIN)/python -m tests.kafka_tests --jobs $(JOBS) $(CLASSES)

soak: $(ALL_TESTS)  ## push under random faults for SECONDS (600): nothing may be lost, stay or grow
	$(BIN)/python -m tests.soak $(SECONDS)

chaos: $(ALL_TESTS)  ## a cluster of real processes under faults for SECONDS (600); SEED repeats a run: nothing may be lost
	$(BIN)/python -m tests.chaos --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

random-requests: $(ALL_TESTS)  ## COUNT (100,000) random requests to Kafka and a broker of ours: the answers are the same; SEED repeats a run, CHUNK a part
	$(BIN)/python -m tests.acceptance.random_requests $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED)) $(if $(CHUNK),--chunk $(CHUNK))

simulate: $(ALL_TESTS)  ## histories of simulated brokers: SEEDS (1000) new ones and a day of sessions, or from SEED on; SEED alone repeats one
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS))
	$(if $(SEED),,$(BIN)/python -m tests.simulation.day)

fuzz: $(ALL_TESTS)  ## mutated requests, handshakes of TLS and logins to a broker, SECONDS (600) each: nothing may end or grow
	$(BIN)/python -m tests.soak.frames $(SECONDS)
	$(BIN)/python -m tests.soak.listeners $(SECONDS)

check: $(RUN) $(VENV)/.check  ## formatting, lints, types and imports between packages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(RUN) $(VENV)/.check  ## let ruff format and repair what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(RUN) $(VENV)/.docs  ## build the guides and the API reference into build/docs; warnings are errors
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs
	@echo "open build/docs/index.html"

bench: $(ALL_TESTS)  ## measure everything beside its peers; writes bench/results.json, docs/benchmarks.html, bench/RESULTS.md
	$(BIN)/python -m bench $(BENCH_ARGS)

instructions: $(RUN) $(VENV)/.unit  ## count the instructions of what must stay fast beside a baseline (needs valgrind); WRITE=1 renews it
	$(BIN)/python -m bench.instructions $(if $(WRITE),--write)

ext: $(RUN)  ## compile the extensions that have changed, in place

# Compiles the extensions of a copy of the sources in build/$(1), with the variable $(2) set.
define build_copy
@mkdir -p build/$(1)
@tar cf - --exclude='*.so' --exclude=__pycache__ --exclude='*.egg-info' ctrlchan tests bench docs tools .ci *.md pyproject.toml \
  setup.py Makefile LICENSE | tar xf - -C build/$(1)
@cd build/$(1) && $(2)=1 $(CURDIR)/$(BIN)/python setup.py -q build_ext --inplace > build.log 2>&1 || { cat build.log; exit 1; }
endef

# In a copy of the sources: the tests, and all processes that they start, import the build that lies beside them.
debug: $(ALL_TESTS)  ## build the extensions with checks of bounds and locks, and run their tests on them
	@echo "compiling the extensions with checks (four minutes of processor time)"
	$(call build_copy,debug,CTRLCHAN_DEBUG)
	@# Kafka's jars, and what is compiled against them, are the same for the copy.
	@mkdir -p build/debug/build; for one in kafka-jars kafka-classes; do mkdir -p build/$$one; \
	  [ -e build/debug/build/$$one ] || ln -s $(CURDIR)/build/$$one build/debug/build/$$one; done
	cd build/debug && PYTHONPATH="$$PWD" CTRLCHAN_CHECKED=1 $(CURDIR)/$(BIN)/python -m pytest -n 2 --dist loadfile tests/unit/locks \
	  tests/unit/codec tests/unit/channel tests/unit/zookeeper/test_state_decoder.py tests/unit/broker \
	  tests/simulation tests/conformance tests/fault/test_storing_broker.py \
	  $(patsubst %,--ignore=%,$(WITHOUT_EXTENSIONS))

coverage: $(ALL_TESTS)  ## count in a copy which lines of the Cython sources the tests of the data plane run (needs gcov)
	@rm -rf build/coverage
	$(call build_copy,coverage,CTRLCHAN_COVERAGE)
	cd build/coverage && PYTHONPATH="$$PWD" $(CURDIR)/$(BIN)/python -m pytest -q -n 2 --dist loadfile $(COVERED)
	@cd build/coverage && $(CURDIR)/$(BIN)/python tools/coverage.py

# In a copy of the sources, as for `make debug`. Java and other children must not have the sanitizers' libraries; objects
# must not come from Python's arenas. libssl is the system's, found with dlopen: what OpenSSL allocates is checked, its own
# code is not. Leaks are not reported: the interpreter frees its modules and static objects at no exit, nor does OpenSSL.
# Tests compare memory and descriptors with those before (tests/unit/server/test_hostile_peers.py): so no more than 16 MB of
# what was freed are kept back.
sanitize: $(RUN) $(VENV)/.check  ## build the extensions with gcc's sanitizers; run tests of codec, channel, server with TLS and SASL, logs
	@echo "compiling the extensions with sanitizers (ten minutes of processor time, once)"
	$(call build_copy,sanitize,CTRLCHAN_SANITIZE)
	cd build/sanitize && PYTHONPATH="$$PWD" \
	  LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" PYTHONMALLOC=malloc \
	  ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=16 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
	  $(CURDIR)/$(BIN)/python -m pytest --capture=sys $(SANITIZED)

clean:  ## remove build results (not the virtual environment)
	rm -rf $(CHANNEL) $(RUN) build dist *.egg-info ctrlchan/*.so ctrlchan/_c/*.so ctrlchan/zookeeper/*.so ctrlchan/channel/*/*.so ctrlchan/server/*.so ctrlchan/server/*/*.so ctrlchan/broker/*/*.so ctrlchan/controller/*/*/*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks

# The extensions are compiled once, for `.channel` and `.run`. The other stamps add packages and do not depend on the sources.
PACKAGES := pyproject.toml tools/install.py

$(VENV)/.python:
	@sh tools/venv.sh $(VENV)
	@touch $@

$(CHANNEL): $(VENV)/.python $(PACKAGES) $(SOURCES)
	@echo "installing ctrlchan and its dependencies into $(VENV) (once; about a minute)"
	@$(BIN)/python tools/install.py --build demo
	@touch $@

$(RUN): $(CHANNEL)
	@$(BIN)/python tools/install.py --build-rest
	@touch $@

$(VENV)/.spark: $(PACKAGES) | $(RUN)
	@echo "installing Spark, and a Java for it, into $(VENV) (once; a few hundred megabytes)"
	@$(BIN)/python tools/install.py spark connect
	@touch $@

$(VENV)/.unit: $(PACKAGES) | $(RUN)
	@echo "installing the packages of the tests into $(VENV) (once)"
	@$(BIN)/python tools/install.py test
	@$(BIN)/python tools/install.py --if-possible kerberos
	@touch $@

$(VENV)/.docs: $(PACKAGES) | $(VENV)/.spark
	@echo "installing the packages of the documents into $(VENV) (once)"
	@$(BIN)/python tools/install.py docs
	@touch $@

$(VENV)/.check: $(PACKAGES) | $(ALL_TESTS)
	@echo "installing the packages of the checks into $(VENV) (once)"
	@$(BIN)/python tools/install.py check
	@touch $@
