# SPDX-License-Identifier: MIT
# ptweave: `make demo` shows it, `make test` tests it, each from a bare Debian 12 with git, make and python3.

VENV := .venv
PY := $(VENV)/bin/python
ROOMS := data preload wrapper cli decode merge

.PHONY: help setup build demo test fuzz agree lint bench bench-decode bench-threads threads-right clean
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup: ## install what is missing (Debian packages, .venv) and build; quick the second time
	@.ci/setup

build: setup ## rebuild the C parts whose sources changed
	@$(PY) hatch_build.py

demo: setup ## record a real program, decode, merge, and show the answers
	@$(PY) -m docs.demo

test: setup ## every test
	@$(PY) -m pytest -q

fuzz: setup ## 10,000 damaged traces through the decoders, with sanitizers
	@$(PY) -m tests.fuzz.run

lint: setup ## ruff and mypy --strict (C is compiled with -Wall -Wextra -Werror)
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy $(ROOMS:%=-p ptweave.%)

bench: setup ## time a recording beside the native run; ratios into build/bench/
	@$(PY) -m tests.bench.bench_engine

bench-decode: setup ## both decoders beside a bare loop over libipt's blocks; ratios into build/bench/
	@$(PY) -m tests.bench.bench_decode

agree: setup ## both decoders over ten thousand runs of random programs
	@PTWEAVE_AGREE=1000 $(PY) -m pytest -q tests/integration/test_decoders_agree.py -k random_programs

bench-threads: setup ## time libtthread's modes beside the native run: workloads, real programs, single operations
	@PYTHONPATH=tests $(PY) -m tests.bench.bench_threads

threads-right: setup ## twelve workloads and six programs, 20 runs each at 2, 4 and 8 threads, in every mode (long)
	@PTWEAVE_LONG=1 $(PY) -m pytest -q tests/integration/test_threads_right.py

clean: ## remove what was built
	@rm -rf build dist wrapper/ptweave/wrapper/_engine wrapper/ptweave/wrapper/_bpf
	@find data preload wrapper decode merge -name '*.so' -delete -o -name '.*.stamp' -delete
