# In a bundle, `make -C PREFIX/share/container-engine/src`: builds the plugin for the Slurm whose headers the C compiler
# finds (CFLAGS="-isystem DIR": in DIR/slurm), and puts it into the bundle. Then start ce-system-install.
all:
	@set -e; build=$$(mktemp -d); trap 'rm -rf "$$build"' EXIT; \
	$(MAKE) -s -C spank_plugin BUILD="$$build" PYTHON=../../../../libexec/python3 IMAGE_CFLAGS= IMAGE_LIBS= "$$build/container_engine.so" \
		"$$build/container_engine_user.so"; \
	release=$$(echo '#include <slurm/slurm_version.h>' | $(CC) $(CFLAGS) -E -dM - | \
		awk '$$2 == "SLURM_VERSION_NUMBER" { print $$3 }'); \
	release=$$(printf '%d.%02d' $$((release >> 16)) $$((release >> 8 & 255))); \
	install -d -m 0755 ../../../lib/slurm/$$release; install -m 0755 "$$build"/*.so ../../../lib/slurm/$$release/; \
	echo "plugin for Slurm $$release: now start ce-system-install"
