# Everything is built under build/. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := all
MAKEFLAGS += --no-print-directory

bin := build/venv/bin
comma := ,
mpis := mpich openmpi
# MPI libraries that `make mpis` installs. If they exist, programs are built for them too.
more_mpis := $(patsubst build/mpi/%/.stamp,%,$(wildcard $(patsubst %,build/mpi/%/.stamp,mpich43 openmpi41 intel)))
debian_mpis := $(if $(wildcard /usr/bin/mpicc.openmpi),openmpi-debian)
# A program is programs/NAME.c and, if it has more parts, programs/NAME_*.c. It is built once for each
# MPI, with the compiler of the MPI's wheel. A rename puts it in place whole, because
# src/vicinal/labs/programs.py calls make without waiting for other builds of the program.
programs := $(foreach name,$(patsubst programs/%.c,%,$(wildcard programs/*.c)),$(if $(findstring _,$(name)),,$(name)))
program_binaries := $(foreach mpi,$(mpis) $(more_mpis),$(programs:%=build/programs/$(mpi)/%))
# programs/fabric/NAME.c uses only the system's libfabric, and no MPI.
program_binaries += $(patsubst programs/%.c,build/programs/%,$(wildcard programs/fabric/*.c))
man_pages := $(patsubst docs/man/%.scd,build/man/%,$(wildcard docs/man/*.scd)) build/man/vicinal.1
c_files = $$(git ls-files --cached --others --exclude-standard '*.c' '*.h')

.PHONY: all
all: build programs man ## Set up the machine and build everything (the default)

.PHONY: setup
setup: ## Install Debian packages and, under build/, Python packages and MPI libraries
	@scripts/setup

.PHONY: build
build: setup ## Build the provider, build/release/provider/libvicinal-fi.so
	@scripts/build release

.PHONY: programs
programs: setup ## Build the MPI programs of the studies, for each MPI
	@$(MAKE) --quiet $(if $(findstring -j,$(MAKEFLAGS)),,-j$$(nproc)) $(program_binaries)

.SECONDEXPANSION:
# program_rule NAME, COMPILER, LINKER OPTIONS, OTHER DEPENDENCIES
define program_rule
build/programs/$(1)/%: programs/%.c $$$$(wildcard programs/$$$$*_*.c) $$(wildcard programs/*.h) $(4)
	@mkdir -p $$(@D)
	@echo "compiling $$* for $(1)"
	@$(2) -std=gnu11 -O2 -g -Wall -Wextra $(if $(WERROR),-Werror) -o $$@.part $$(filter %.c,$$^) $(3) -lm && mv $$@.part $$@
endef
wheel_compiler = I_MPI_ROOT=$(CURDIR)/build/mpi/$(1) build/mpi/$(1)/bin/mpicc
$(foreach mpi,$(mpis) $(more_mpis),$(eval $(call program_rule,$(mpi),$(call wheel_compiler,$(mpi)),\
	-Wl$(comma)-rpath$(comma)$(CURDIR)/build/mpi/$(mpi)/lib,requirements/$(mpi).txt)))
$(foreach mpi,$(debian_mpis),$(eval $(call program_rule,$(mpi),/usr/bin/mpicc.openmpi)))

build/programs/fabric/%: programs/fabric/%.c $(wildcard programs/fabric/*.h)
	@mkdir -p $(@D)
	@echo "compiling $* for libfabric"
	@$${CC:-gcc} -std=gnu11 -O2 -g -Wall -Wextra $(if $(WERROR),-Werror) $$(pkg-config --cflags libfabric) \
		-o $@.part $< $$(pkg-config --libs libfabric) && mv $@.part $@

.PHONY: man
man: setup ## Make the man pages, build/man
	@$(MAKE) --quiet man-pages

# With the completions, which describe the same commands; packages contain both.
.PHONY: man-pages
man-pages: $(man_pages) $(addprefix build/completions/,vicinal vicinal.fish _vicinal)

build/completions/vicinal: shell = bash
build/completions/vicinal.fish: shell = fish
build/completions/_vicinal: shell = zsh
build/completions/%: scripts/completion.py src/vicinal/command_app.py
	@mkdir -p $(@D)
	@$(bin)/python $< $(shell) >$@.part && mv $@.part $@

build/man/%: docs/man/%.scd
	@mkdir -p $(@D)
	@scdoc <$< >$@.part && mv $@.part $@

.PHONY: packages
packages: all ## Build a wheel, packages for Debian and RPM, recipes and images of containers, in build/packages
	@scripts/setup packages
	@scripts/packages deb rpm recipes images

.PHONY: docs-site
docs-site: ## Build the documentation's site, build/site; a broken link is an error
	@scripts/setup docs
	@PYTHONPATH=scripts build/docs-venv/bin/python -m docs_site

# The command line itself describes its commands and options.
build/man/vicinal.1: docs/man/vicinal.1.scd.in scripts/man_commands.py $(shell find src/vicinal -name '*.py')
	@mkdir -p $(@D)
	@$(bin)/python scripts/man_commands.py <$< >$@.scd && scdoc <$@.scd >$@.part && mv $@.part $@

.PHONY: demo
demo: all ## Demonstrate Vicinal: ranks in isolated nodes on this machine
	@$(bin)/vicinal demo

.PHONY: demo-guests
demo-guests: all ## Demonstrate Vicinal between two virtual machines
	@$(bin)/vicinal guests demo

.PHONY: bench
bench: all ## Run the studies; ONLY=name runs one study, ISSUE=2 the studies of an issue, RESUME=1 continues
	@$(bin)/vicinal bench $(if $(ONLY),--only '$(ONLY)') $(if $(ISSUE),--issue $(ISSUE)) \
		$(if $(RESUME),--resume)

.PHONY: check
check: ## Build, lint and run the tests that each change must pass
	@scripts/check common

.PHONY: check-all
check-all: ## Run every suite that is not good already; build/check-all.json has the results
	@scripts/check all

.PHONY: check-times
check-times: ## Show the slowest suites and tests of the last run
	@scripts/check times

.PHONY: check-list
check-list: setup ## List the suites; `make check-NAME` runs one, as make check-asan, or several, as make check-guests
	@scripts/check list

.PHONY: distro
distro: ## Build and test on another release of Debian, in build/distro: DISTRO=trixie
	@scripts/distro $(or $(DISTRO),trixie)

.PHONY: release
release: setup ## Build, sign and tag a release (RELEASING.md): VERSION=X.Y.Z; DRY_RUN=1 commits and tags nothing; WITHOUT=rpm
	@$(bin)/python scripts/release.py '$(or $(VERSION),$(error say which version: make release VERSION=X.Y.Z))' \
		$(if $(DRY_RUN),--dry-run) $(if $(WITHOUT),--without '$(WITHOUT)')

.PHONY: check-planted
check-planted: all ## Plant known faults in a copy, and show which suite finds each; hours; ONLY=id,id  NEAR=1  AGAIN=1
	@PYTHONPATH=scripts $(bin)/python -m planted $(if $(ONLY),--only '$(ONLY)') $(if $(NEAR),--near) $(if $(AGAIN),--again)

check-%: FORCE
	@scripts/check only '$*'

.PHONY: FORCE
FORCE:

.PHONY: mpis
mpis: setup ## Install the other MPI libraries; Intel's is not free software, WITHOUT=intel leaves it out
	@scripts/setup mpis

.PHONY: check-mpis
check-mpis: all mpis ## Run mpi4py's tests with every MPI library; ONLY=name,name  HOSTS=2  RANKS=4  FULL=1  RESUME=1
	@$(bin)/python tests/mpi4py/check.py $(if $(ONLY),--only '$(ONLY)') $(if $(HOSTS),--hosts '$(HOSTS)') \
		$(if $(RANKS),--ranks '$(RANKS)') $(if $(FULL),--full) $(if $(RESUME),--resume) $(if $(WITHOUT),--without '$(WITHOUT)')

.PHONY: format
format: setup ## Format C and Python in the project's style
	@clang-format -i $(c_files)
	@$(bin)/ruff format --quiet .
	@$(bin)/ruff check --quiet --fix --exit-zero .

.PHONY: lint
lint: all ## Run only the linters, including the static analyzer
	@scripts/lint && scripts/lint analyzer

.PHONY: requirements
requirements: setup ## Pin the newest Python packages that requirements/*.in allow
	@scripts/pin

.PHONY: clean
clean: ## Remove everything that was built
	@rm -rf build

.PHONY: help
help: ## Show this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 22
