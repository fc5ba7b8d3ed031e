# Makefile - the front door: each target installs what it needs where it may, builds and runs. The
# build itself is CMake's: `cmake -B build && cmake --build build && ctest --test-dir build` works too.
# SPDX-License-Identifier: Apache-2.0
.PHONY: help build test demo check check-quick check-long fuzz bench bench-plan bench-compare bench-executed bench-costs device-kit install clean
SECONDS_EACH ?= 60
PREFIX ?= /usr/local
PARTS ?=
# AUTO, ON or OFF. Unset: `make build` and `make install` come with GPUs where CUDA is
# installed; the others take build/ as it is, and what they make anew comes without nvcc's minutes.
ZX_CUDA ?=
PROGRAM = -DZX_CUDA=$(or $(ZX_CUDA),AUTO)
AS_IS = $(addprefix -DZX_CUDA=,$(or $(ZX_CUDA),$(if $(wildcard build/CMakeCache.txt),,OFF)))

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /  make \1 - /p' Makefile

build: ## the program, build/zerox
	@.ci/install build
	@.ci/build build zerox $(PROGRAM)
	@echo "build/zerox is ready"

test: ## builds and runs every test
	@.ci/install build test
	@.ci/build build all $(AS_IS)
	@.ci/test build

demo: ## trains a small GPT over bytes on 2 ranks under ZeRO stage 3 and shows its plan
	@.ci/install build
	@.ci/build build zerox $(AS_IS)
	@.ci/demo

check: ## tests under sanitizers and by clang, format, licences, include directions
	@.ci/install build test check
	@.ci/check full

check-quick: ## the part of it to run beside an edit
	@.ci/install build test check
	@.ci/check quick

check-long: ## more of what is tried by chance, all cases over the CUDA stand-in, also under sanitizers (hours; PARTS="plans faults cases cases-adverse cases-shm asan tsan rows")
	@.ci/install build test check
	@.ci/long $(PARTS)

fuzz: ## libFuzzer on every reader of files, SECONDS_EACH=60
	@.ci/install build check
	@.ci/fuzz $(SECONDS_EACH)

bench: ## speed of the kernels on this machine
	@.ci/install build
	@.ci/build build bench $(AS_IS)
	@for program in build/bench.products build/bench.sim; do echo "$$program" && "$$program" || exit 1; done

bench-plan: ## what plans of large models have to reach, each figure with what is asked (PARTS="time gaps layout ratios residency lp truth")
	@.ci/install build
	@.ci/build build bench.plan $(AS_IS)
	@build/bench.plan $(PARTS)
	@case " $(or $(PARTS),truth) " in *" truth "*) .ci/install build test && .ci/build build sched.truth.planner $(AS_IS) && ZX_TRUTH=2000 build/sched.truth.planner;; esac

bench-compare: ## predicted against executed steps of every policy, GPT-2 124M at three bandwidths (minutes)
	@.ci/install build
	@.ci/build build zerox $(AS_IS)
	@tests/bench/bench_compare.sh build/zerox

bench-executed: ## executed steps against the other policies' at equal budgets, with what is wanted (an hour)
	@.ci/install build
	@.ci/build build zerox $(AS_IS)
	@tests/bench/bench_executed.sh build/zerox

bench-costs: ## a step against depth, width, sequence, vocabulary and ranks; draws docs/costs.svg (minutes)
	@.ci/install build
	@.ci/build build zerox $(AS_IS)
	@tests/bench/bench_costs.sh build/zerox docs/costs.svg

device-kit: ## what tests/device.sh carries to a machine that has a GPU and nvcc, but none of our packages
	@.ci/install build test
	@tests/device.sh prepare

install: ## the program into PREFIX=/usr/local
	@.ci/install build
	@.ci/build build zerox $(PROGRAM)
	@cmake --install build --prefix $(PREFIX)

clean: ## removes what was built
	rm -rf build build-asan build-tsan build-clang build-cuda build-device build-fuzz
