# `make help` says what there is. Everything runs from the root of the repository.
PREFIX ?= /opt/container-engine
DESTDIR ?=
PYTHON ?= /usr/bin/python3
CE_SANDBOX_DIR ?= /var/lib/ce-sandbox
export CE_SANDBOX_DIR

VENV := .venv
PIP := $(VENV)/bin/pip
PYTEST := $(VENV)/bin/pytest -q
SOURCES := $(shell find container_engine -name '*.py' -o -name '*.py.in' -o -name py.typed)
SCRIPTS := $(shell find container_engine -name '*_script.py.in')
CHECKED := container_engine sandbox/ce_sandbox tests docs
# One source of the requirements: pyproject.toml. $(call requirements,dev) adds that extra's.
requirements = $(shell $(PYTHON) sandbox/requirements $(1))
# What a prefix has is known by content: several working trees may install into the same one.
digest = $(shell cat $(1) | sha256sum | cut -c1-16)
# Where files are written; what they say of themselves is below PREFIX.
ROOT := $(DESTDIR)$(PREFIX)
REQUIRED := $(ROOT)/.required-$(call digest,pyproject.toml)
PACKAGE := $(ROOT)/.package-$(call digest,$(sort $(SOURCES)) pyproject.toml LICENSE)

.PHONY: help deps packages demo check docs format lint types unit c-tests test-integration test-slurm \
	bench bench-images compat deb check-packages faults fuzz soak install sandbox-engine clean distclean

help: ## show this text
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1@\2/p' Makefile | column -t -s @

demo: ## install what is missing, start a two-node cluster, run a job in a container
	@sandbox/demo

check: ## everything that CI checks, quick things first
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

install: $(PACKAGE) ## build and install below PREFIX (default /opt/container-engine); DESTDIR for packages
	@$(ROOT)/bin/python3 -IB docs/manual.py $(ROOT)/share/man
	@set -e; for place in bash:bash-completion/completions/ce zsh:zsh/site-functions/_ce \
			fish:fish/vendor_completions.d/ce.fish; do \
		file=$(ROOT)/share/$${place#*:}; mkdir -p $$(dirname $$file); \
		$(ROOT)/bin/python3 -I -m container_engine completion $${place%%:*} > $$file; \
	done
	@# whoever launches meanwhile finds the old hooks or the new ones
	@rm -rf $(ROOT)/share/container-engine/hooks.new
	@set -e; for file in $$(cd hooks && find . -mindepth 2 -maxdepth 2 -type f ! -name '*.md'); do \
		mode=0644; [ ! -x hooks/$$file ] || mode=0755; \
		install -D -m $$mode hooks/$$file $(ROOT)/share/container-engine/hooks.new/$$file; \
	done; cd $(ROOT)/share/container-engine; rm -rf hooks.old; \
	[ ! -d hooks ] || mv hooks hooks.old; mv hooks.new hooks; rm -rf hooks.old
	@$(MAKE) -s -C spank_plugin install PREFIX=$(PREFIX) DESTDIR=$(DESTDIR)
	@$(MAKE) -s -C hooks/ssh/programs install PREFIX=$(PREFIX) DESTDIR=$(DESTDIR)
	@set -e; for script in $(SCRIPTS); do \
		name=$$(basename $$script _script.py.in); \
		packages=$$($(ROOT)/bin/python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
		sed -e 's|@PREFIX@|$(PREFIX)|g' -e "s|@PACKAGES@|$${packages#$(DESTDIR)}|g" $$script \
			> $(ROOT)/libexec/container-engine/.$$name; \
		chmod 0755 $(ROOT)/libexec/container-engine/.$$name; \
		mv $(ROOT)/libexec/container-engine/.$$name $(ROOT)/libexec/container-engine/$$name; \
	done

$(ROOT)/.python: $(VENV)/.build
	@$(PYTHON) -m venv --without-pip $(ROOT)
	@# nobody works in this environment, and where it was made means nothing
	@rm -f $(ROOT)/bin/*ctivate* && sed -i '/^command/d' $(ROOT)/pyvenv.cfg
	@touch $@

$(REQUIRED): $(ROOT)/.python
	@$(PIP) --python $(ROOT)/bin/python3 install -qq $(call requirements)
	@rm -f $(ROOT)/.required-* && touch $@

# A copy is built, so that neither the sources nor another build are in the way.
$(PACKAGE): $(REQUIRED)
	@set -e; mkdir -p build; copy=$$(mktemp -d build/package.XXXXXX); \
		trap 'rm -rf "$$copy"' EXIT; \
		cp -r container_engine pyproject.toml LICENSE README.md "$$copy"; \
		$(PIP) wheel -qq --no-deps --no-build-isolation -w "$$copy/wheel" "$$copy"; \
		$(PIP) --python $(ROOT)/bin/python3 install -qq --no-deps --force-reinstall \
			"$$copy"/wheel/*.whl
	@# a PYTHONPATH of the user's must not decide which modules `ce` gets
	@sed -i '1s|.*|#!$(PREFIX)/bin/python3 -I|' $(ROOT)/bin/ce
	@rm -f $(ROOT)/.package-* && touch $@

sandbox-engine: packages
	@$(MAKE) -s install PREFIX=$(CE_SANDBOX_DIR)/prefix

format: $(VENV)/.dev ## put the Python sources into their form
	@$(VENV)/bin/ruff format -q . && $(VENV)/bin/ruff check -q --fix .

docs: $(VENV)/.docs ## the documentation as a site, in build/docs/site
	@$(VENV)/bin/python docs/build_site.py

lint: $(VENV)/.dev ## form, lint and types of the Python sources
	@$(VENV)/bin/ruff format --check . && $(VENV)/bin/ruff check . && $(VENV)/bin/mypy $(CHECKED)

unit: $(VENV)/.dev ## unit tests, without Slurm and Podman
	@$(PYTEST) tests/unit

c-tests: | packages ## build, analyse and test the plugin's C sources
	@$(MAKE) -s -C spank_plugin check
	@$(MAKE) -s -C hooks/ssh/programs check

test-integration: $(VENV)/.dev sandbox-engine ## tests with real Podman
	@$(PYTEST) tests/integration

test-slurm: $(VENV)/.dev sandbox-engine ## tests on a real cluster of two nodes
	@$(PYTEST) tests/slurm

bench: $(VENV)/.dev sandbox-engine ## measure against other ways to start a container
	@sandbox/packages charliecloud
	@sandbox/up -n 2 && PYTHONPATH=sandbox $(VENV)/bin/python -m tests.bench

bench-images: $(VENV)/.dev ## measure the import of a 500 MB image (debootstrap makes it once)
	@PYTHONPATH=sandbox $(VENV)/bin/python -m tests.bench.images

compat: ## build and test with another pair of Slurm and Podman, in a Debian 13 of its own
	@tests/compat/run

deb: packages $(VENV)/.dev ## build a Debian package for this release, in build/
	@packaging/deb

check-packages: ## build and install the packages in clean systems of Debian 12 and 13
	@tests/packages/run

fuzz: $(VENV)/.dev ## random input, for longer than the unit tests do
	@$(PYTEST) tests/fuzz

faults: $(VENV)/.dev sandbox-engine ## random faults while steps start (FAULTS_RUNS=500, FAULTS_SEED=...)
	@$(PYTEST) -s -m soak tests/slurm/test_faults.py

soak: $(VENV)/.dev sandbox-engine ## many starts in a row, looking for what is left behind
	@$(PYTEST) -m soak tests/slurm tests/integration

clean: ## remove what was built (not the virtual environment)
	@rm -rf build *.egg-info .mypy_cache .ruff_cache .hypothesis

distclean: clean ## also remove the virtual environment
	@rm -rf $(VENV)
