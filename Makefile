# make demo   the main job, end to end, on a private Slurm cluster (SLURM=no: without Slurm)
# make lab    a shell in a private Slurm cluster, which ends with it
# make test   all tests
# make test-matrix  the tests on a real Slurm on other releases of it (RELEASES="trixie forky": 24.11, 26.05)
# make bench  the benchmarks
# make gpu-check  the cuda backend on a machine with NVIDIA devices
# make soak   ten thousand handovers while daemons are killed (tests/crash)
# make packages  the wheel, in dist/
# make check  lint, types, import rules, generated code
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SLURM ?= yes
RELEASES ?= trixie forky
# A file's tests stay together, for what they share, in the order of collection: the long ones are not the last.
# Two for each processor, since half of their time is waiting for daemons; four at most.
WORKERS ?= $(shell n=$$(nproc); echo $$((n < 2 ? 2 : 4)))
SIDE_BY_SIDE := -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 2
WIRE := slurm_interleave/client/wire
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: demo lab test test-matrix test-here torch frameworks promtool criu bench gpu-check soak check lint types protos protos-check plugin packages clean

demo: $(VENV)/.ready
ifneq ($(SLURM),no)
	@deploy/lab/install-packages.sh
	@$(MAKE) --no-print-directory plugin
endif
	@PYTHONPATH=deploy:examples $(BIN)/python -m demo $(if $(filter no,$(SLURM)),--no-slurm)

lab: $(VENV)/.ready
	@deploy/lab/install-packages.sh
	@$(MAKE) --no-print-directory plugin
	@PYTHONPATH=deploy $(BIN)/python -m lab $(ARGS)

test: $(VENV)/.ready
	@deploy/lab/install-packages.sh --optional
	@deploy/lab/install-packages.sh --optional --databases
	@deploy/lab/install-packages.sh --optional --browser
	@if command -v slurmctld >/dev/null; then $(MAKE) --no-print-directory plugin; fi
	@$(MAKE) --no-print-directory torch frameworks promtool criu
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) $(ARGS)

# Each release is a Debian of its own, entered by chroot; all run side by side, and here what differs.
test-matrix: $(VENV)/.ready
	@mkdir -p build/releases
	@$(MAKE) --no-print-directory -j3 -Otarget test-here $(RELEASES:%=test-on-%)
	@$(PYTHON) deploy/lab/release_table.py build/releases slurm_plugin/README.md $(if $(CI),--check)

test-here: plugin
	@deploy/lab/test-release.sh $(patsubst %,tests/slurm/test_%.py,pieces cgroups rest shards)

test-on-%:
	@deploy/lab/release.sh $* deploy/lab/test-release.sh

# Some GB on most machines, so only where it comes within two minutes; without it its tests are skipped.
torch: $(VENV)/.ready
	@$(BIN)/python -c 'import torch' 2>/dev/null || timeout 120 $(BIN)/pip install -qq --group torch || { \
		$(BIN)/pip uninstall -qq -y torch; \
		echo "torch was not installed within two minutes: tests/torch is skipped"; }

# Another 0.7 GB, after torch.
FRAMEWORKS := trl ray lightning accelerate
frameworks: $(VENV)/.ready
	@$(BIN)/python -c 'import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))' \
		torch $(FRAMEWORKS) || ! $(BIN)/python -c 'import torch' 2>/dev/null || \
		timeout 120 $(BIN)/pip install -qq --group frameworks || { \
		$(BIN)/pip uninstall -qq -y $(FRAMEWORKS); \
		echo "TRL, Ray, Lightning and Accelerate were not installed within two minutes: their tests are skipped"; }

# One program of Debian's package prometheus, which would bring a daemon and 36 other packages.
promtool:
	@command -v promtool >/dev/null || test -x build/promtool/usr/bin/promtool || { \
		mkdir -p build/promtool && cd build/promtool && \
		timeout 60 apt-get download -qq prometheus 2>/dev/null && \
		dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb; } || \
		echo "promtool cannot be fetched: what it would check of tests/test_metrics.py is skipped"

# Debian 12's own fails on new kernels; this one comes with its libraries, in a folder.
criu:
	@command -v criu >/dev/null || test -x build/criu/criu || \
		timeout 180 deploy/lab/install-criu.sh build/criu >/dev/null 2>&1 || { \
		rm -rf build/criu; \
		echo "criu cannot be fetched: the tests of drains by a real criu are skipped"; }

# Last come those that end with 1 where a goal is missed.
bench: $(VENV)/.ready
	@$(BIN)/python benchmarks/handover.py $(ARGS)
	@$(BIN)/python benchmarks/snapshot.py $(filter --json --quick,$(ARGS))
	@$(BIN)/python benchmarks/report.py $(filter --json --quick,$(ARGS))
	@$(BIN)/python benchmarks/pairing.py $(filter --json --quick,$(ARGS))
	@if [ "$$(id -u)" = 0 ] && command -v slurmctld >/dev/null; then \
		$(MAKE) --no-print-directory plugin >&2 && \
		$(BIN)/python benchmarks/placement.py $(filter --json --quick,$(ARGS)); \
	else echo "placement.py is left out: it needs root and Slurm" >&2; fi
	@$(BIN)/python benchmarks/job_submit.py $(filter --json,$(ARGS))
	@$(BIN)/python benchmarks/agent.py $(filter --json --quick,$(ARGS))

# Nothing is installed for it: it is meant for machines that come with PyTorch.
gpu-check: build/gpu
	@PYTHONPATH=$(CURDIR)/build/gpu$${PYTHONPATH:+:$$PYTHONPATH} $(PYTHON) benchmarks/gpu_check.py $(ARGS)

soak: $(VENV)/.ready
	INTERLEAVE_HANDOVERS=10000 $(BIN)/python -m pytest tests/crash -s $(ARGS)

check: lint types protos-check

lint: $(VENV)/.ready
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/lint-imports

types: $(VENV)/.ready build/types
	$(BIN)/mypy -p slurm_interleave -p lab -p demo -p grpo -p jobs

plugin:
	@$(MAKE) --no-print-directory -C slurm_plugin

packages: $(VENV)/.ready
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .

# mypy and protoc need the namespace as folders.
build/types:
	@mkdir -p build/types/slurm_interleave
	@for part in client orchestrator sql node_agent; do \
		ln -sfn ../../../$$part build/types/slurm_interleave/$$part; done

# What the cuda and torch backends need, without the client's own dependencies.
build/gpu:
	@mkdir -p build/gpu/slurm_interleave/client
	@ln -sfn ../../../../client/core build/gpu/slurm_interleave/client/core
	@ln -sfn ../../../../client/integrations build/gpu/slurm_interleave/client/integrations
	@ln -sfn ../../../node_agent build/gpu/slurm_interleave/node_agent

# Made with the oldest tools, so that the stubs load under every protobuf and grpcio that we allow.
build/protoc/bin/python:
	$(PYTHON) -m venv build/protoc
	build/protoc/bin/pip install --quiet grpcio-tools==1.62.3 'setuptools<80'

protos: build/types build/protoc/bin/python
	build/protoc/bin/python -m grpc_tools.protoc -I build/types \
		--python_out=build/types --pyi_out=build/types --grpc_python_out=build/types \
		$(patsubst client/wire/%,build/types/$(WIRE)/%,$(wildcard client/wire/*.proto))

protos-check: protos
	@git diff --exit-code --stat -- client/wire || \
		{ echo "client/wire: generated code is stale; run 'make protos' and commit it"; exit 1; }

$(VENV)/.ready: pyproject.toml
	@echo "making the virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { \
		echo "installing Debian packages: python3-venv"; \
		apt-get update -qq && apt-get install -qq -y python3-venv >/dev/null && $(PYTHON) -m venv $(VENV); }
	@$(BIN)/pip install --quiet --quiet --upgrade 'pip>=25.1'
	@$(BIN)/pip install --quiet --quiet -e '.[orchestrator,mariadb,postgres,agent,sim,timeline,tracing]' --group dev
	@touch $@

clean:
	rm -rf build dist $(VENV) *.egg-info
	$(MAKE) -C slurm_plugin clean
