# `make help` says what there is. Everything runs from the root of the repository.
PREFIX ?= /opt/container-engine
DESTDIR ?=
PYTHON ?= /usr/bin/python3
CE_SANDBOX_DIR ?= /var/lib/ce-sandbox
export CE_SANDBOX_DIR

# Settings of the caller reach neither what is built nor what is tested.
SHELL := sandbox/shell
unexport $(filter $(shell sed '/^\#/d' sandbox/left-out),$(.VARIABLES))
export LANG := C.UTF-8
# What is quick in parallel is so by its own makefile; rows of tests are run at once by tests/check.
.NOTPARALLEL:

VENV := .venv
PIP := $(VENV)/bin/pip
PYTEST := $(VENV)/bin/pytest -q
# What runs for minutes: what takes most of them is shown, and a soak test has no limit of its own.
SLOW := --durations=10 --durations-min=5
SOAK := -s -m soak -o faulthandler_timeout=0
SOURCES := $(shell find container_engine -name '*.py' -o -name '*.py.in' -o -name py.typed -o -name smallroot.sh -o -name 'ce.*sh')
TEMPLATES := $(shell find container_engine -name '*_script.py.in')
CHECKED := container_engine hooks/ssh/ce_ssh sandbox/ce_sandbox spank_plugin/headers.py tests docs
# One source of the requirements: pyproject.toml. $(call requirements,dev) adds that extra's.
requirements = $(shell $(PYTHON) sandbox/requirements $(1))
# What a prefix has is known by content: several working trees may install into the same one.
digest = $(shell cat $(1) | sha256sum | cut -c1-16)
# Where files are written; what they say of themselves is below PREFIX.
ROOT := $(DESTDIR)$(PREFIX)
REQUIRED := $(ROOT)/.required-$(call digest,pyproject.toml)
# One directory below PREFIX, where Python finds pyvenv.cfg in its parent; never in bin, which users put on
# their PATH: their `python3` must stay their own.
INTERPRETER := $(ROOT)/libexec/python3
PACKAGE := $(ROOT)/.package-$(call digest,$(sort $(SOURCES)) pyproject.toml LICENSE)

.PHONY: help deps packages demo check docs generated recording format lint types unit c-tests test-integration test-slurm test-core check-further test-packaging test-clones sandbox-images \
	bench bench-scale bench-images bench-reading bench-tree check-podman test-by-podman check-pyxis check-launchers check-debian13 check-debian13-core check-debian14 check-debian14-core deb rpm check-packages \
	check-sanitizers check-sanitizers-core check-vm check-vm-core check-arm64 bundle bundle-arm64 check-bundle gpu-bundle vm-packages metrics-packages vm-up vm-down faults fuzz soak install sandbox-engine clean distclean

##@ First steps
help: ## show this text
	@awk -F ':.*## ' '/^##@/ { print "\n" substr($$0, 5) } /^[a-z0-9-]+:.*## / { printf "  make %-23s%s\n", $$1, $$2 }' Makefile

demo: ## install what is missing, start a two-node cluster, run a job in a container
	@sandbox/demo

check: ## what every change must pass, quick things first
	@tests/check

deps: packages $(VENV)/.dev ## install what is missing (distribution packages, .venv)

packages:
	@sandbox/packages

$(VENV)/.build: sandbox/requirements
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install -qq 'setuptools>=77' wheel
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.build
	@$(PIP) install -qq $(call requirements,dev)
	@touch $@

$(VENV)/.docs: pyproject.toml $(VENV)/.build
	@$(PIP) install -qq $(call requirements,docs)
	@touch $@

##@ Install
install: $(PACKAGE) ## build and install below PREFIX (default /opt/container-engine); DESTDIR for packages
	@rm -f $(ROOT)/.sources; touch -d '1 second ago' $(ROOT)/.installing
	@$(INTERPRETER) -IB docs/manual.py $(ROOT)/share/man
	@set -e; for place in bash:bash-completion/completions/ce zsh:zsh/site-functions/_ce \
			fish:fish/vendor_completions.d/ce.fish; do \
		file=$(ROOT)/share/$${place#*:}; mkdir -p $$(dirname $$file); \
		$(INTERPRETER) -I -m container_engine completion $${place%%:*} > $$file; \
	done; \
	for place in bash:bash-completion/start/container-engine zsh:zsh/site-functions/_ce_slurm \
			fish:fish/vendor_conf.d/container-engine.fish; do \
		file=$(ROOT)/share/$${place#*:}; mkdir -p $$(dirname $$file); \
		$(INTERPRETER) -I -m container_engine completion $${place%%:*} --slurm > $$file; \
	done
	@# whoever launches meanwhile finds the old hooks or the new ones
	@rm -rf $(ROOT)/share/container-engine/hooks.new
	@set -e; for file in $$(cd hooks && find . -mindepth 2 -maxdepth 2 -type f ! -name '*.md' ! -name Makefile); do \
		mode=0644; [ ! -x hooks/$$file ] || mode=0755; \
		install -D -m $$mode hooks/$$file $(ROOT)/share/container-engine/hooks.new/$$file; \
	done; $(MAKE) -s -C hooks/ssh install PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) CATALOG=$(abspath $(ROOT))/share/container-engine/hooks.new; \
	cd $(ROOT)/share/container-engine; rm -rf hooks.old; \
	[ ! -d hooks ] || mv hooks hooks.old; mv hooks.new hooks; rm -rf hooks.old
	@set -e; for place in guide/errors guide/topics howto quickstart guide admin; do \
		install -D -m 0644 -t $(ROOT)/share/container-engine/$${place#*/} docs/$$place/*.md; \
	done
	@sed 's|@PREFIX@|$(PREFIX)|' packaging/apparmor.in > $(ROOT)/share/container-engine/apparmor
	@$(MAKE) -s -C spank_plugin install PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) PYTHON=$(PYTHON)
	@mkdir -p $(ROOT)/libexec/container-engine/python
	@set -e; for script in $(TEMPLATES); do \
		name=$$(basename $$script _script.py.in); place=$$name; \
		case $$name in ce|enroot|apptainer|system_install) place=python/$$name;; esac; \
		packages=$$($(INTERPRETER) -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
		sed -e 's|@PREFIX@|$(PREFIX)|g' -e "s|@PACKAGES@|$${packages#$(ROOT)/}|g" $$script \
			> $(ROOT)/libexec/container-engine/.$$name; \
		chmod 0755 $(ROOT)/libexec/container-engine/.$$name; \
		mv $(ROOT)/libexec/container-engine/.$$name $(ROOT)/libexec/container-engine/$$place; \
	done
	@set -e; for name in plan plan-anew; do \
		ln -sf ce-start $(ROOT)/libexec/container-engine/.$$name; \
		mv -T $(ROOT)/libexec/container-engine/.$$name $(ROOT)/libexec/container-engine/$$name; \
	done
	@mkdir -p $(ROOT)/sbin && ln -sfn ../libexec/container-engine/ce-start $(ROOT)/sbin/ce-system-install
	@# commands of other tools, for the PATH of sites and users that want them
	@mkdir -p $(ROOT)/libexec/container-engine/compat
	@set -e; for name in enroot apptainer singularity; do ln -sfn ../ce-start $(ROOT)/libexec/container-engine/compat/$$name; done
	@# programs of an older release
	@find $(ROOT)/libexec/container-engine ! -type d ! -newer $(ROOT)/.installing -delete; rm $(ROOT)/.installing

$(ROOT)/.interpreter: $(VENV)/.build
	@$(PYTHON) -m venv --without-pip $(ROOT)
	@mkdir -p $(@D)/libexec && ln -sf "$$(readlink -f $(ROOT)/bin/python3)" $(INTERPRETER) && rm -f $(ROOT)/bin/python* $(ROOT)/bin/𝜋thon $(ROOT)/.python
	@# nobody works in this environment, and where it was made means nothing
	@rm -f $(ROOT)/bin/*ctivate* && sed -i '/^command/d' $(ROOT)/pyvenv.cfg
	@touch $@

$(REQUIRED): $(ROOT)/.interpreter
	@$(PIP) --python $(INTERPRETER) install -qq $(call requirements)
	@rm -f $(ROOT)/.required-* && touch $@

# A copy is built, so that neither the sources nor another build are in the way. Where an installation was broken off,
# bin/ce leads nowhere, at which pip fails.
$(PACKAGE): $(REQUIRED)
	@set -e; mkdir -p build; copy=$$(mktemp -d build/package.XXXXXX); \
		trap 'rm -rf "$$copy"' EXIT; \
		cp -r container_engine pyproject.toml LICENSE README.md "$$copy"; \
		$(PIP) wheel -qq --no-deps --no-build-isolation -w "$$copy/wheel" "$$copy"; \
		[ -e $(ROOT)/bin/ce ] || rm -f $(ROOT)/bin/ce; \
		$(PIP) --python $(INTERPRETER) install -qq --no-deps --force-reinstall \
			"$$copy"/wheel/*.whl
	@# nothing of the user's environment must decide which Python or which modules `ce` gets
	@ln -sf ../libexec/container-engine/ce-start $(ROOT)/bin/.ce && mv -T $(ROOT)/bin/.ce $(ROOT)/bin/ce
	@rm -f $(ROOT)/.package-* && touch $@

sandbox-engine: packages
	@set -e; sources=$$(PYTHONPATH=sandbox $(PYTHON) -B -m ce_sandbox.installed); \
		$(MAKE) -s install PREFIX=$(CE_SANDBOX_DIR)/prefix; \
		echo "$$sources" > $(CE_SANDBOX_DIR)/prefix/.sources

##@ Parts of the checks
generated: $(VENV)/.dev ## write what is made of other sources: schemas, the plan's types, pages of errors, pictures
	@for made in schemas plan_types protocol errors draw; do $(VENV)/bin/python docs/$$made.py || exit 1; done

format: $(VENV)/.dev ## put the Python sources into their form
	@$(VENV)/bin/ruff format -q . && $(VENV)/bin/ruff check -q --fix .

docs: $(VENV)/.docs ## the documentation as a site, in build/docs/site
	@$(VENV)/bin/python docs/build_site.py

recording: sandbox-engine $(VENV)/.build ## record the terminal session of the documentation anew, on the sandbox
	@$(PYTHON) -m venv build/termtosvg && build/termtosvg/bin/pip install -qq 'setuptools<80' termtosvg
	@sandbox/up -n 2 && $(PYTHON) docs/record.py build/termtosvg/bin/termtosvg

lint: $(VENV)/.dev ## form, lint and types of the Python sources, English of comments, lines of C
	@$(VENV)/bin/ruff format --check . && $(VENV)/bin/ruff check . && \
		$(VENV)/bin/python -m tests.english && $(VENV)/bin/python -m tests.c_lines && $(VENV)/bin/mypy $(CHECKED)

# A run removes its own files: else a later one, of a single test, waits while thousands are removed.
unit: $(VENV)/.dev ## unit tests, without Slurm and Podman; T=FILE::TEST is one of them
	@$(PYTEST) -o tmp_path_retention_policy=failed $(or $(T),-n auto --maxprocesses=8 tests/unit)

c-tests: ## build, analyse and test the plugin's C sources
	@sandbox/packages clang libclang-rt-dev
	@$(MAKE) -s -C spank_plugin check
	@$(MAKE) -s -C spank_plugin libfuzz SECONDS=5
	@$(MAKE) -s -C hooks/ssh check

test-integration: $(VENV)/.dev sandbox-engine $(if $(T),,metrics-packages) ## tests with real Podman; T=FILE::TEST is one of them
	@$(PYTEST) $(SLOW) $(or $(T),tests/integration)

test-slurm: $(VENV)/.dev sandbox-engine ## tests on a real cluster of two nodes; T=FILE::TEST is one of them
	@$(PYTEST) $(SLOW) $(or $(T),tests/slurm)

# After sandbox-images: two installations at one time would meet.
CORE := $(shell grep -v '^\#' tests/systems/core)
test-core: $(VENV)/.dev ## what says most about plugin and launcher; after sandbox-images
	@tests/apart core $(PYTEST) $(SLOW) $(CORE)

# What the core leaves. As many rows at once as two processors can bear.
SLURM_ROWS := test-slurm-1 test-slurm-2 test-slurm-3 test-slurm-4 test-slurm-5 test-slurm-6 test-slurm-7
PODMAN_ROWS := test-podman-1 test-podman-2
.PHONY: $(SLURM_ROWS) $(PODMAN_ROWS)
$(SLURM_ROWS): test-slurm-%: $(VENV)/.dev
	@tests/apart slurm-$* $(PYTEST) $(SLOW) --part $*/$(words $(SLURM_ROWS)) tests/slurm
$(PODMAN_ROWS): test-podman-%: $(VENV)/.dev
	@tests/apart podman-$* $(PYTEST) $(SLOW) --part $*/$(words $(PODMAN_ROWS)) $(filter-out $(PACKAGING),$(wildcard tests/integration/test_*.py))
FIRST_ROWS := test-slurm-1 | test-slurm-2 | test-slurm-3 | test-podman-1
SECOND_ROWS := test-slurm-4 | test-slurm-5 | test-slurm-6 | test-slurm-7 | test-podman-2
# They bring a user, which would count as left behind by a row.
metrics-packages:
	@sandbox/packages --only prometheus prometheus-node-exporter

check-further: deps metrics-packages ## the tests of packages, clusters and Podman that `make check` leaves to CI
	@tests/check sandbox-images "$(FIRST_ROWS)" "$(SECOND_ROWS) | test-packaging | test-by-podman"

# Apart there is no network, which making a package or a bundle needs.
PACKAGING := tests/integration/test_package.py tests/integration/test_metrics.py tests/integration/test_gpu_script.py

# They need sandbox-images, too.
test-clones: $(VENV)/.dev ## a choice of the tests in clones at unusual places, with a hostile environment
	@tests/apart clone-private tests/clones private
	@tests/apart clone-second tests/clones second

test-packaging: $(VENV)/.dev metrics-packages
	@$(PYTEST) $(SLOW) $(PACKAGING)

# What tests otherwise make when they first want it, some of it from the network.
sandbox-images: sandbox-engine
	@[ -d $(CE_SANDBOX_DIR)/images ] || { sandbox/up -n 2 && sandbox/down; } >/dev/null
	@sandbox/make-image all >/dev/null
	@PYTHONPATH=sandbox $(PYTHON) -m tests.slurm.debuggers $(CE_SANDBOX_DIR)/cache/packages

##@ Benchmarks
bench: $(VENV)/.dev sandbox-engine ## measure against other ways to start a container
	@sandbox/packages charliecloud
	@sandbox/up -n 2 && PYTHONPATH=sandbox $(VENV)/bin/python -m tests.bench

bench-scale: $(VENV)/.dev sandbox-engine ## count what grows with the number of nodes, all on this machine; NODES="64 1000"
	@PYTHONPATH=sandbox $(VENV)/bin/python -m tests.bench.many_nodes $(NODES)

bench-images: bench-tree ## measure the import of a 500 MB image
	@PYTHONPATH=sandbox $(VENV)/bin/python -m tests.bench.images

bench-reading: bench-tree sandbox-engine ## measure reading from an image, beside other mounts and a directory
	@PYTHONPATH=sandbox $(VENV)/bin/python -m tests.bench.reading
	@sandbox/up -n 2 && PYTHONPATH=sandbox $(VENV)/bin/python -m tests.bench.first_import

bench-tree: $(VENV)/.dev packages ## make what bench-images packs, once; needs the network
	@sandbox/packages mmdebstrap umoci
	@PYTHONPATH=sandbox $(VENV)/bin/python -m tests.bench.tree

##@ Other tools and systems
# Nothing of it is kept here. Images are stand-ins, made once with a mirror of Debian and an index of Python packages.
check-pyxis: $(VENV)/.dev sandbox-engine ## pyxis's own tests against this engine; PYXIS_SUITE=DIR is a checkout of pyxis
	@[ -n "$(PYXIS_SUITE)" ] || { echo "check-pyxis: PYXIS_SUITE=DIR is missing, a checkout of NVIDIA/pyxis" >&2; exit 2; }
	@sandbox/packages bats mmdebstrap apt-utils
	@PYTHONPATH=sandbox $(VENV)/bin/python -m tests.pyxis "$(PYXIS_SUITE)" $(T)

# What they bring is installed once, from an index of Python packages. SCRIPTS is a directory with scripts of others.
check-launchers: $(VENV)/.dev sandbox-engine ## launchers of others against this engine; SCRIPTS=DIR adds each run.sub and ray.sub below
	@CE_LAUNCHER_SCRIPTS="$(SCRIPTS)" $(PYTEST) $(SLOW) $(or $(T),tests/launchers)

# Those that count on crun say so themselves. The rows copy the setting with the sandbox; test-by-podman has it in its copy alone.
BY_PODMAN := $(CE_SANDBOX_DIR)/prefix/etc/container-engine/conf.d/10-podman.toml
test-by-podman: $(VENV)/.dev
	@tests/apart by-podman sh -c 'mkdir -p "$${0%/*}" && echo "start = \"podman\"" >"$$0" && exec "$$@"' $(BY_PODMAN) \
		$(PYTEST) $(SLOW) $(CORE)

check-podman: $(VENV)/.dev sandbox-images ## cluster and Podman tests with Podman as what creates containers
	@mkdir -p $(dir $(BY_PODMAN)) && echo 'start = "podman"' > $(BY_PODMAN); trap "rm -f $(BY_PODMAN)" EXIT; \
		$(if $(T),$(PYTEST) $(SLOW) $(T),tests/check "$(FIRST_ROWS) | test-core" "$(SECOND_ROWS)")

check-debian13: ## all cluster and Podman tests with Slurm 24.11 and Podman 5.4, in a Debian 13 of their own
	@tests/systems/debian 13

check-debian13-core: ## its core, in a root directory that is made quickly
	@tests/systems/debian 13 --core

check-debian14: ## all of them with what Debian testing has: Slurm 26.05, Podman 5.8
	@tests/systems/debian 14

check-debian14-core: ## its core, in a root directory that is made quickly
	@tests/systems/debian 14 --core

vm-packages:
	@sandbox/packages --only python3-venv qemu-system-x86 qemu-utils debootstrap e2fsprogs squashfs-tools openssh-client git

check-vm: $(VENV)/.dev sandbox-images vm-up ## tests on two virtual machines: cgroup v2, NFS, cut cables; leaves them running
	@$(PYTEST) -m 'vm and not vm_arm64' -o faulthandler_timeout=3600 tests/vm
	@$(PYTHON) -m tests.vm versions

check-vm-core: $(VENV)/.dev sandbox-images vm-up ## the same without those that take minutes each
	@$(PYTEST) -m 'vm and not vm_long and not vm_arm64' -o faulthandler_timeout=3600 tests/vm
	@$(PYTHON) -m tests.vm versions

check-arm64: export CE_VM_SECOND = arm64
check-arm64: $(VENV)/.dev vm-packages ## tests on an x86 login node and an ARM compute node with pages of 16 KiB, both emulated
	@sandbox/packages --only qemu-system-arm
	@$(PYTHON) -m tests.vm up
	@$(PYTEST) -m vm -o faulthandler_timeout=3600 tests/vm/test_arm64.py tests/vm/test_bundle.py tests/vm/test_steps.py
	@$(PYTHON) -m tests.vm versions

vm-up: vm-packages ## start those two machines, with the engine of the working tree
	@$(PYTHON) -m tests.vm up

vm-down: ## stop them and forget what is on their disks
	@$(PYTHON) -m tests.vm down

##@ Packages and archives
bundle: packages $(VENV)/.build ## build an archive that works wherever it is unpacked, with its own Python and crun, in build/
	@packaging/bundle

bundle-arm64: packages $(VENV)/.build ## the same for ARM, with a cross compiler, without the programs of the ssh hook
	@sandbox/packages --only mmdebstrap gcc-aarch64-linux-gnu libc6-dev-arm64-cross
	@DEB_HOST_ARCH=arm64 packaging/bundle

check-bundle: bundle ## try that archive in root directories of an old and a new Debian, with musl, and with another Slurm
	@tests/systems/bundle build/container-engine-*-$$(uname -m).tar.xz

gpu-bundle: bundle ## an archive for a machine with NVIDIA's GPUs, in build/: unpack it there and start ce-gpu/run
	@tests/gpu/bundle build/container-engine-*-$$(uname -m).tar.xz build/ce-gpu-$$(uname -m).tar.gz

deb: ## build a Debian package for this release, in build/
	@packaging/deb

rpm: ## build an RPM for this release, in build/
	@packaging/rpm/build

check-packages: ## build and install the packages in clean systems of Debian 12 and 13
	@tests/systems/packages

##@ Longer than CI
fuzz: $(VENV)/.dev ## random input, for longer than the unit tests do
	@CE_FUZZ_EXAMPLES=20000 $(PYTEST) tests/unit/edf/test_fuzz.py
	@sandbox/packages clang libclang-rt-dev
	@$(MAKE) -s -C spank_plugin libfuzz SECONDS=$(or $(FUZZ_SECONDS),300)

faults: $(VENV)/.dev sandbox-engine ## random faults while steps start (FAULTS_RUNS=500, FAULTS_SEED=...)
	@$(PYTEST) $(SOAK) tests/slurm/test_faults.py
	@CE_CONTAINMENT_ROUNDS=200 $(PYTEST) tests/slurm/test_containment.py

soak: $(VENV)/.dev sandbox-engine ## 2000 starts in a row (SOAK_LAUNCHES), 50 at once: what is left, what grows
	@$(PYTEST) $(SOAK) tests/slurm/test_many_starts.py tests/slurm/test_mpi.py tests/slurm/test_kept.py tests/integration \
		tests/slurm/test_starts_again.py tests/unit/node/test_recorded_start.py

check-sanitizers: $(VENV)/.dev sandbox-engine ## cluster tests with a plugin built with ASan and UBSan
	@tests/sanitizers/run

check-sanitizers-core: $(VENV)/.dev sandbox-engine ## its core, and random input, in a minute
	@tests/sanitizers/run --core
	@sandbox/packages clang libclang-rt-dev
	@$(MAKE) -s -C spank_plugin libfuzz SECONDS=20

##@ Clean up
clean: ## remove what was built (not the virtual environment)
	@rm -rf build *.egg-info .mypy_cache .ruff_cache .hypothesis

distclean: clean ## also remove the virtual environment
	@rm -rf $(VENV)
