# SPDX-License-Identifier: MIT
# ptweave: `make demo` shows it, `make test` tests it, each from a bare Debian 12 with git, make and python3.

VENV := .venv
PY := $(VENV)/bin/python
ROOMS := data preload wrapper cli decode merge
# pytest keeps the tests as it compiled them; without, each of its processes compiles all of them: some 5 s
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup setup-test build demo test properties lab fuzz agree lint clean threads-right
.PHONY: bench bench-compare bench-decode bench-events bench-merge bench-probes bench-record bench-threads bench-vector
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup: ## install what is missing (Debian packages, .venv) and build; quick the second time
	@.ci/setup

setup-test: ## the same, and what only tests and benchmarks need
	@.ci/setup test

build: setup ## rebuild the C parts whose sources changed
	@$(PY) hatch_build.py

demo: setup ## record a real program, decode, merge, and show the answers
	@$(PY) -m docs.demo

# As many test files at a time as there are processors: what a file's tests share is made once.
SIDE_BY_SIDE := -n $(shell nproc) --dist loadfile

# Property tests draw the same examples in every run here, so that a run says something about the change it tests;
# `make properties` and a pytest run by hand draw new ones.
test: setup-test ## every test
	@$(PY) -m pytest -q $(SIDE_BY_SIDE) --hypothesis-profile=ci

properties: setup-test ## the property tests alone, with 3,000 new examples each
	@$(PY) -m pytest -q --hypothesis-profile=search -m property tests/unit

# Its tests have a folder of their own for what they make: pytest removes what the fourth last run left, which takes
# most of a minute where that was `make test`.
lab: setup-test ## the hardware recorder in a virtual machine whose kernel has an intel_pt PMU made of software
	@mkdir -p build/lab/tests
	@PYTEST_DEBUG_TEMPROOT=$(CURDIR)/build/lab/tests $(PY) -m pytest -q tests/lab

fuzz: setup-test ## 10,000 damaged traces through the decoders, with sanitizers
	@$(PY) -m tests.fuzz.run

lint: setup-test ## ruff and mypy --strict (C is compiled with -Wall -Wextra -Werror)
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy $(ROOMS:%=-p ptweave.%)

bench: setup-test ## time a recording beside the native run; ratios into build/bench/
	@$(PY) -m tests.bench.bench_engine

bench-decode: setup-test ## both decoders beside a bare loop over libipt's blocks; ratios into build/bench/
	@$(PY) -m tests.bench.bench_decode

bench-record: setup-test ## seconds of processor time that draining 1 GB of Intel PT from its rings takes
	@$(PY) -m tests.bench.bench_record

bench-merge: setup-test ## what merging adds to decoding, its memory, and how long questions take
	@$(PY) -m tests.bench.bench_merge

bench-compare: setup-test ## seconds that `diff` takes to find a bug of one line in runs of SQLite, and its memory
	@$(PY) -m tests.bench.bench_compare

bench-events: setup-test ## recording of system calls beside the native run, strace, perf and bpftrace (some of it: LOADS="calls mixed sustained overload")
	@$(PY) -m tests.bench.bench_events $(LOADS)

agree: setup-test ## both decoders over ten thousand runs of random programs
	@PTWEAVE_AGREE=1000 $(PY) -m pytest -q tests/integration/test_decoders_agree.py -k random_programs

bench-threads: setup-test ## time libtthread's modes beside the native run: workloads, real programs, single operations
	@PYTHONPATH=tests $(PY) -m tests.bench.bench_threads

bench-probes: setup-test ## nanoseconds that a hit of a probe costs, beside a uprobe
	@PYTHONPATH=tests $(PY) -m tests.bench.bench_probes

bench-vector: setup-test ## nanoseconds per event of the event vector, beside LTTng-UST
	@$(PY) -m tests.bench.bench_vector

threads-right: setup-test ## twelve workloads and six programs, 20 runs each at 2, 4 and 8 threads (hours; parts: K="engine and pigz")
	@PTWEAVE_LONG=1 $(PY) -m pytest -q tests/integration/test_threads_right.py $(if $(K),-k "$(K)")

clean: ## remove what was built
	@rm -rf build dist wrapper/ptweave/wrapper/_engine wrapper/ptweave/wrapper/_bpf
	@find data preload wrapper decode merge -name '*.so' -delete -o -name '.*.stamp' -delete
