/*
 * ce-ask: asks a library of a container what it would use, for checks of hooks (hooks/NAME/hook.toml).
 *
 *	ce-ask fabric PROVIDER	     libfabric: has it devices of this provider (cxi)?
 *	ce-ask net LIBRARY DEVICE    a network plugin of NCCL or RCCL: its devices, whose names begin so (cxi)
 *	ce-ask verbs		     libibverbs: a device with an active port
 *	ce-ask nccl		     would NCCL use such a port, with the variables of the tasks? (infiniband)
 *	ce-ask ucx		     UCX: a transport for InfiniBand
 *	ce-ask from LIBRARY DIR      is the library that the loader finds below this directory?
 *	ce-ask pmix		     PMIx: can it be initialized, as far as that goes without a server?
 *	ce-ask mpi		     MPI: do all tasks of the step find one another? Run by each of them
 *
 * Runs in the container, as the user. Prints what it finds; the last line says what is wrong. Exit code: 0 if
 * all is well, else 1. What a library does to it, crash or hang, is the verdict, too.
 *
 * It is linked with no version of the C library's symbols (Makefile), so that any glibc has them. Of each
 * structure of a library it knows only the beginning, which the library's interface keeps.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])
/* more than any release's structure of properties */
enum { ROOM = 4096 };

/* what the answer begins with, where it is one of many tasks' */
static char whose[256];

/* Print the last line and end, without the destructors of libraries, which may do anything. */
__attribute__((format(printf, 1, 2), noreturn)) static void wrong(const char *format, ...)
{
	va_list values;

	(void)printf("%s", whose);
	va_start(values, format);
	(void)vprintf(format, values);
	va_end(values);
	(void)puts("");
	(void)fflush(NULL);
	_exit(1);
}

static void *opened(const char *name)
{
	void *library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);

	if (library == NULL)
		wrong("%s", dlerror());
	return library;
}

/* Return a function or variable of a library, which must have it. */
static void *needed(void *library, const char *name)
{
	void *found = dlsym(library, name);

	if (found == NULL)
		wrong("%s", dlerror());
	return found;
}

/* Return the variables that are set, of those which decide, to be said after a failure. */
static const char *chosen(const char *const *names)
{
	static char text[512];

	*text = '\0';
	for (; *names != NULL; names++) {
		const char *value = getenv(*names);
		size_t length = strlen(text);
		if (value != NULL)
			(void)snprintf(text + length, sizeof text - length, "%s%s=%s",
				       length > 0 ? " " : ", with ", *names, value);
	}
	return text;
}

/* ---- libfabric: fi_getinfo(3) ------------------------------------------------------------------ */

struct fabric {
	void *object;
	char *name, *provider;
};

struct domain {
	void *object;
	char *name;
};

struct info {
	struct info *next;
	uint64_t caps, mode;
	uint32_t format;
	size_t source_length, target_length;
	void *source, *target, *handle, *send, *receive, *end;
	struct domain *domain;
	struct fabric *fabric;
};

static void ask_fabric(char **argv)
{
	static const char *const deciding[] = { "FI_PROVIDER", "FI_PROVIDER_PATH", "FI_CXI_DEVICE_NAME",
						NULL };
	void *library = opened("libfabric.so.1");
	uint32_t (*version)(void) = needed(library, "fi_version");
	int (*get)(uint32_t, const char *, const char *, uint64_t, void *, struct info **) =
		needed(library, "fi_getinfo");
	struct info *found = NULL;
	int count = 0, result = get(version(), NULL, NULL, 0, NULL, &found);
	char others[256] = "";

	if (result != 0)
		wrong("fi_getinfo failed with %d%s", result, chosen(deciding));
	for (; found != NULL; found = found->next) {
		const char *name = found->fabric != NULL ? found->fabric->provider : NULL;
		const char *device = found->domain != NULL ? found->domain->name : NULL;
		if (name == NULL)
			continue;
		/* a layered one is "cxi;ofi_rxd" */
		if (strcmp(name, argv[0]) == 0 && device != NULL)
			count += printf("provider %s, device %s\n", name, device) > 0;
		else if (strstr(others, name) == NULL && strlen(others) + strlen(name) + 3 < sizeof others)
			sprintf(others + strlen(others), "%s%s", *others != '\0' ? ", " : "", name);
	}
	if (count == 0)
		wrong("libfabric offers no device of the provider %s, only %s%s", argv[0],
		      *others != '\0' ? others : "none", chosen(deciding));
}

/* ---- NCCL's plugins: ext-net of NCCL --------------------------------------------------------------- */

enum { OLDEST = 4, FOR_ONE = 11, NEWEST = 12 };

typedef void logging(int level, unsigned long flags, const char *file, int line, const char *format, ...);

struct plugin {
	const char *name;
	union {
		int (*init)(logging *log, void *profiler);
		/* from version 11 on, for one communicator */
		int (*init_one)(void **context, uint64_t communicator, int *traffic_class, logging *log,
				void *profiler);
	};
	int (*devices)(int *count);
	int (*properties)(int device, const char **properties);
};

/* the last warning of a plugin, after a colon */
static char warning[256];

__attribute__((format(printf, 5, 6))) static void take(int level, unsigned long flags, const char *file,
						       int line, const char *format, ...)
{
	char text[sizeof warning];
	va_list values;

	(void)flags, (void)file, (void)line;
	va_start(values, format);
	(void)vsnprintf(text, sizeof text, format, values);
	va_end(values);
	(void)puts(text);
	if (level <= 2) /* NCCL_LOG_WARN */
		(void)snprintf(warning, sizeof warning, ": %.*s", (int)sizeof warning - 3, text);
}

/* Set what NCCL's files say of variables that are not set, as NCCL does before it looks at any. */
static void read_file_of_nccl(const char *path)
{
	FILE *file = fopen(path, "r");
	char line[ROOM];

	while (file != NULL && fgets(line, sizeof line, file) != NULL) {
		char *value = strchr(line, '=');
		line[strcspn(line, "\r\n")] = '\0';
		if (value == NULL || *line == '#')
			continue;
		*value++ = '\0';
		(void)setenv(line, value, 0);
	}
	if (file != NULL)
		(void)fclose(file);
}

static void read_files_of_nccl(void)
{
	const char *other = getenv("NCCL_CONF_FILE"), *home = getenv("HOME");
	char path[ROOM];

	(void)snprintf(path, sizeof path, "%s/.nccl.conf", home != NULL ? home : "");
	read_file_of_nccl(other != NULL && *other != '\0' ? other : path);
	read_file_of_nccl("/etc/nccl.conf");
}

/* Return the value of a variable of NCCL's, NULL if it is not set or empty. */
static const char *said(const char *name)
{
	const char *value = getenv(name);

	return value != NULL && *value != '\0' ? value : NULL;
}

/* The function's name in a header may be that of a version for C23, which no older glibc has. */
static long long number(const char *text)
{
	long long (*parse)(const char *, char **, int) = needed(NULL, "strtoll");

	return parse(text, NULL, 0);
}

/* Check whether a list such as "mlx5_0:1,mlx5_1", of names' beginnings, has a name and port (0: any). With
 * "=" names are whole, and with "^" it has all others. */
static int is_listed(const char *list, const char *name, int port)
{
	int is_other = *list == '^', is_whole, is_empty = 1, is_found = 0;

	list += is_other;
	is_whole = *list == '=';
	list += is_whole;
	for (size_t length; *(list += strspn(list, ",")) != '\0'; list += length) {
		size_t end = strcspn(list, ",:");
		length = strcspn(list, ",");
		if (end == 0)
			continue;
		const char *wanted = end < length ? list + end + 1 : ",";
		int is_port = port == 0 || strchr(",:", *wanted) != NULL || number(wanted) == port;
		is_empty = 0;
		is_found = is_found || (is_port && strncmp(list, name, end) == 0 &&
					(!is_whole || name[end] == '\0'));
	}
	return (is_empty || is_found) != is_other;
}

/* NCCL's processes find each other by TCP, whatever network they then use, and end without an interface. */
static void need_interface(void)
{
	const char *names = said("NCCL_SOCKET_IFNAME");
	struct ifaddrs *all;

	/* it takes a name of one letter for none */
	if (names == NULL || strlen(names) < 2 || getifaddrs(&all) != 0)
		return;
	for (struct ifaddrs *one = all; one != NULL; one = one->ifa_next) {
		int family = one->ifa_addr != NULL ? one->ifa_addr->sa_family : AF_UNSPEC;
		if ((family == AF_INET || family == AF_INET6) && (one->ifa_flags & IFF_RUNNING) != 0 &&
		    is_listed(names, one->ifa_name, 0))
			return;
	}
	wrong("NCCL_SOCKET_IFNAME=%s names no interface that is up, and NCCL would end", names);
}

/* Return the library that NCCL would load, NULL if there is none: NCCL_NET_PLUGIN is its name, or what its
 * name ends with. */
static void *plugin_library(const char *name)
{
	const char *wanted = said("NCCL_NET_PLUGIN");
	char longer[256];

	if (wanted != NULL && strcasecmp(wanted, "none") == 0)
		return NULL;
	void *library = dlopen(wanted != NULL ? wanted : name, RTLD_NOW | RTLD_GLOBAL);
	if (library != NULL || wanted == NULL)
		return library;
	(void)snprintf(longer, sizeof longer, "%.*s-%s.so", (int)strcspn(name, "."), name, wanted);
	return dlopen(longer, RTLD_NOW | RTLD_GLOBAL);
}

static void *opened_plugin(const char *name)
{
	const char *wanted = said("NCCL_NET_PLUGIN");
	void *library = plugin_library(name);

	if (library != NULL)
		return library;
	if (wanted == NULL)
		wrong("%s", dlerror());
	if (strcasecmp(wanted, "none") == 0)
		wrong("NCCL_NET_PLUGIN is %s", wanted);
	wrong("NCCL_NET_PLUGIN is %s, but: %s", wanted, dlerror());
}

/* Return a library's newest interface of those that are known, NULL if it has none. */
static const struct plugin *interface_of(void *library, int *version)
{
	const struct plugin *plugin = NULL;
	char symbol[32];

	for (*version = NEWEST; plugin == NULL && *version >= OLDEST; (*version)--) {
		sprintf(symbol, "ncclNetPlugin_v%d", *version);
		plugin = dlsym(library, symbol);
	}
	++*version;
	return plugin;
}

static int begun(const struct plugin *plugin, int version)
{
	void *context = NULL;
	int traffic_class = -1;

	return version < FOR_ONE ? plugin->init(take, NULL) :
				   plugin->init_one(&context, 0, &traffic_class, take, NULL);
}

static int is_wanted(const char *network)
{
	const char *wanted = said("NCCL_NET");

	return wanted == NULL || strcasecmp(wanted, network) == 0;
}

static void ask_net(char **argv)
{
	static const char *const deciding[] = { "FI_PROVIDER", "FI_CXI_DEVICE_NAME", NULL };
	int count = 0, fit = 0, version, result;
	const char *first = "";

	read_files_of_nccl();
	need_interface();
	const struct plugin *plugin = interface_of(opened_plugin(argv[0]), &version);
	if (plugin == NULL)
		wrong("%s has no interface of a network plugin from version %d to %d", argv[0], OLDEST,
		      NEWEST);
	printf("ncclNetPlugin_v%d: %s\n", version, plugin->name);
	if (!is_wanted(plugin->name))
		wrong("the plugin's name is '%s', and NCCL_NET is '%s'", plugin->name, getenv("NCCL_NET"));
	if ((result = begun(plugin, version)) != 0)
		wrong("the plugin %s cannot be initialized (%d)%s%s", plugin->name, result, warning,
		      chosen(deciding));
	if ((result = plugin->devices(&count)) != 0 || count <= 0)
		wrong("the plugin %s offers no device%s%s", plugin->name, warning, chosen(deciding));
	for (int device = 0; device < count; device++) {
		static const char *properties[ROOM / sizeof(char *)];
		if (plugin->properties(device, properties) != 0 || properties[0] == NULL)
			wrong("the plugin %s cannot describe device %d%s", plugin->name, device, warning);
		printf("device %d: %s\n", device, properties[0]);
		fit += strncmp(properties[0], argv[1], strlen(argv[1])) == 0;
		first = device == 0 ? properties[0] : first;
	}
	if (fit == 0)
		wrong("the plugin %s would use %s, and no device %s*%s", plugin->name, first, argv[1],
		      chosen(deciding));
}

/* Return the name of the plugin that NCCL or RCCL would use, NULL if what they have themselves decides. */
static const char *used_plugin(void)
{
	static const char *const names[] = { "libnccl-net.so", "librccl-net.so" };
	static const char *properties[ROOM / sizeof(char *)];
	const struct plugin *plugin = NULL;
	int count = 0, version;

	for (size_t i = 0; plugin == NULL && i < LENGTH(names); i++) {
		void *library = plugin_library(names[i]);
		plugin = library != NULL ? interface_of(library, &version) : NULL;
	}
	if (plugin == NULL || !is_wanted(plugin->name) || begun(plugin, version) != 0)
		return NULL;
	if (plugin->devices(&count) != 0 || count <= 0)
		return NULL;
	/* libfabric names a device for TCP as the system does */
	const char *device = plugin->properties(0, properties) == 0 ? properties[0] : NULL;
	if (device != NULL && if_nametoindex(device) != 0)
		wrong("the plugin %s would use the interface %s: TCP", plugin->name, device);
	return plugin->name;
}

/* ---- verbs: ibv_query_port(3) ---------------------------------------------------------------------- */

enum { MOST_PORTS = 8, PORT_ACTIVE = 4 };
/* link layers, with the byte of a port's attributes that has them */
enum { INFINIBAND = 1, ETHERNET, LINK_LAYER = 46 };

struct port {
	const char *device;
	void *context;
	int number;
	int attributes[ROOM / sizeof(int)];
};

/* what libibverbs printed, which says nowhere else why it leaves out a device */
static char aside[512];

/* Return the devices, with the errors that it prints put into `aside` and among what is printed. */
static void **listed(void **(*list)(int *), int *count)
{
	int ends[2], errors = dup(STDERR_FILENO);

	/* a pipe that is full loses the rest, and nobody waits */
	if (errors < 0 || pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
		return list(count);
	(void)dup2(ends[1], STDERR_FILENO);
	(void)close(ends[1]);
	void **devices = list(count);
	(void)dup2(errors, STDERR_FILENO);
	ssize_t size = read(ends[0], aside, sizeof aside - 1);
	aside[size > 0 ? size : 0] = '\0';
	printf("%s", aside);
	return devices;
}

/* Call a function for each active port of the devices. Return how many devices have one. */
static int visit(void *library, void (*with)(void *library, const struct port *port), int *count, int *opens)
{
	void **(*list)(int *) = needed(library, "ibv_get_device_list");
	const char *(*name)(void *) = needed(library, "ibv_get_device_name");
	void *(*open)(void *) = needed(library, "ibv_open_device");
	int (*ask)(void *, uint8_t, int *) = needed(library, "ibv_query_port");
	void **devices = listed(list, count);
	int active = 0;

	for (int i = 0; devices != NULL && i < *count; i++) {
		static struct port port;
		int is_active = 0;
		port.device = name(devices[i]);
		port.context = open(devices[i]);
		/* of a card with two ports, the second may be the one with a cable */
		for (port.number = 1; port.context != NULL && port.number <= MOST_PORTS; port.number++) {
			if (ask(port.context, (uint8_t)port.number, port.attributes) != 0)
				break;
			if (port.attributes[0] != PORT_ACTIVE)
				continue;
			is_active = 1;
			with(library, &port);
		}
		printf("device %s: %s\n", port.device,
		       port.context == NULL ? "cannot be opened" : is_active ? "active" : "not active");
		*opens += port.context != NULL;
		active += is_active;
	}
	return active;
}

static void pass(void *library, const struct port *port)
{
	(void)library, (void)port;
}

static void ask_verbs(char **argv)
{
	int count = 0, opens = 0;

	(void)argv;
	if (visit(opened("libibverbs.so.1"), pass, &count, &opens) == 0)
		wrong("libibverbs finds %d devices: %d can be opened, none is active%s%.*s", count, opens,
		      *aside != '\0' ? "; " : "", (int)strcspn(aside, "\n"), aside);
}

/* ---- NCCL's own transport over verbs ----------------------------------------------------------------- */

/* the ports that NCCL could use, as text, and how many of them its variables choose */
static char ports[256];
static int chosen_ports;

/* Check what RoCE needs: an index of the port's table of addresses, which has empty places. */
static void need_address(void *library, const struct port *port)
{
	static const uint8_t none[16];
	uint8_t address[16];
	const char *index = said("NCCL_IB_GID_INDEX");

	if (index == NULL || number(index) < 0)
		return;
	int (*ask)(void *, uint8_t, int, void *) = needed(library, "ibv_query_gid");
	if (ask(port->context, (uint8_t)port->number, (int)number(index), address) != 0 ||
	    memcmp(address, none, sizeof none) == 0)
		wrong("NCCL_IB_GID_INDEX=%s, and %s:%d has no address there: NCCL would end", index,
		      port->device, port->number);
}

static void take_port(void *library, const struct port *port)
{
	int layer = ((const uint8_t *)port->attributes)[LINK_LAYER];
	const char *list = said("NCCL_IB_HCA");
	size_t length = strlen(ports);

	if (layer != INFINIBAND && layer != ETHERNET)
		return;
	(void)snprintf(ports + length, sizeof ports - length, "%s%s:%d", length > 0 ? ", " : "", port->device,
		       port->number);
	if (list != NULL && !is_listed(list, port->device, port->number))
		return;
	chosen_ports++;
	if (layer == ETHERNET)
		need_address(library, port);
}

/* Without an active port it is "verbs" that says so. */
static void ask_nccl(char **argv)
{
	const char *plugin, *off, *network;
	int count = 0, opens = 0;

	(void)argv;
	read_files_of_nccl();
	void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_GLOBAL);
	if (library == NULL) {
		printf("NCCL would use nothing: %s\n", dlerror());
		return;
	}
	need_interface();
	if ((plugin = used_plugin()) != NULL) {
		printf("NCCL would use the plugin %s\n", plugin);
		return;
	}
	if (!is_wanted("IB") && !is_wanted("Socket"))
		wrong("NCCL_NET=%s, and NCCL finds no such network: it would end", said("NCCL_NET"));
	(void)visit(library, take_port, &count, &opens);
	if (*ports == '\0') {
		(void)puts("NCCL would use nothing: no port is active");
		return;
	}
	if ((network = said("NCCL_NET")) != NULL && !is_wanted("IB"))
		wrong("NCCL_NET=%s chooses TCP", network);
	if ((off = said("NCCL_IB_DISABLE")) != NULL && number(off) != 0)
		wrong("NCCL_IB_DISABLE=%s chooses TCP", off);
	if (chosen_ports == 0)
		wrong("NCCL_IB_HCA=%s leaves TCP: it has none of the active ports %s", said("NCCL_IB_HCA"),
		      ports);
	printf("NCCL would use %d of the ports %s\n", chosen_ports, ports);
}

/* ---- UCX: ucp.h ------------------------------------------------------------------------------------- */

static void ask_ucx(char **argv)
{
	static const char *const transports[] = { " rc_", " dc_", " ud_" };
	static const char *const deciding[] = { "UCX_TLS", "UCX_NET_DEVICES", NULL };
	void *library = opened("libucp.so.0");
	void (*version)(unsigned *, unsigned *, unsigned *) = needed(library, "ucp_get_version");
	int8_t (*init)(unsigned, unsigned, const void *, const void *, void **) =
		needed(library, "ucp_init_version");
	void (*print)(const void *, FILE *) = needed(library, "ucp_context_print_info");
	/* the first says that the second is set: features, of which 1 is messages with tags */
	uint64_t wanted[ROOM / sizeof(uint64_t)] = { 1, 1 };
	unsigned major = 0, minor = 0, release = 0;
	void *context = NULL;
	const char *layer = said("OMPI_MCA_pml");
	char *text = NULL;
	size_t size = 0;
	int count = 0;

	(void)argv;
	/* of Open MPI, whose layer "cm" has a network, too: libfabric's */
	if (layer != NULL && !is_listed(layer, "ucx", 0) && (*layer == '^' || !is_listed(layer, "cm", 0)))
		wrong("OMPI_MCA_pml=%s leaves out UCX", layer);
	version(&major, &minor, &release);
	int result = init(major, minor, wanted, NULL, &context);
	if (result != 0)
		wrong("UCX %u.%u cannot be initialized (%d)%s", major, minor, result, chosen(deciding));
	FILE *memory = open_memstream(&text, &size);
	if (memory == NULL)
		wrong("out of memory");
	print(context, memory);
	(void)fclose(memory);
	(void)puts(text);
	for (size_t i = 0; i < LENGTH(transports); i++)
		count += strstr(text, transports[i]) != NULL;
	if (count == 0)
		wrong("UCX %u.%u has no transport for InfiniBand%s", major, minor, chosen(deciding));
}

/* ---- where a library is ------------------------------------------------------------------------------ */

static void ask_from(char **argv)
{
	void *library = opened(argv[0]);
	char name[ROOM], place[ROOM], whole[ROOM];

	if (dlinfo(library, RTLD_DI_ORIGIN, name) != 0)
		wrong("%s", dlerror());
	int is_found = realpath(argv[1], place) != NULL && realpath(name, whole) != NULL;
	/* "/" alone ends with a slash */
	size_t length = is_found && strcmp(place, "/") != 0 ? strlen(place) : 0;
	if (!is_found || strncmp(whole, place, length) != 0 ||
	    (whole[length] != '/' && whole[length] != '\0'))
		wrong("%s is that of %s, not of %s", argv[0], name, argv[1]);
	printf("%s is that of %s\n", argv[0], name);
}

/* ---- PMIx: PMIx_Init(3) ---------------------------------------------------------------------------- */

/* pmix_common.h. Version 2 gives up at once without a namespace, later ones when they have no server. */
enum { PMIX_SUCCESS = 0, PMIX_ERR_UNREACH = -25, PMIX_ERR_INVALID_NAMESPACE = -44 };

static const char pmix_name[] = "libpmix.so.2";

/* Return the library that the image's MPI would use, NULL if there is none. Open MPI 5 may have its own, to
 * which only libmpi leads. */
static void *opened_pmix(void)
{
	static const char absent[] = "libpmix.so.2: cannot open";

	(void)dlopen("libmpi.so.40", RTLD_LAZY);
	void *library = dlopen(pmix_name, RTLD_NOW | RTLD_GLOBAL);
	const char *error = library == NULL ? dlerror() : "";
	if (library == NULL && strncmp(error, absent, strlen(absent)) != 0)
		wrong("%s", error);
	return library;
}

/* Remove what the server of another step has said: this step's speaks to tasks only. */
static void forget_server(void)
{
	char ***variables = needed(NULL, "environ");

	for (char **one = *variables; one != NULL && *one != NULL;) {
		char name[256];
		(void)snprintf(name, sizeof name, "%.*s", (int)strcspn(*one, "="), *one);
		if (strncmp(name, "PMIX_", 5) != 0 || strncmp(name, "PMIX_MCA_", 9) == 0 ||
		    strcmp(name, "PMIX_PREFIX") == 0 || unsetenv(name) != 0)
			one++;
	}
}

static void ask_pmix(char **argv)
{
	static const char *const modules[] = { "PMIX_MCA_psec", "PMIX_MCA_gds", "PMIX_MCA_ptl", NULL };
	static uint64_t process[ROOM / sizeof(uint64_t)];

	(void)argv;
	forget_server();
	void *library = opened_pmix();
	if (library == NULL) {
		printf("%s: none\n", pmix_name);
		return;
	}
	const char *(*version)(void) = needed(library, "PMIx_Get_version");
	int (*init)(void *, const void *, size_t) = needed(library, "PMIx_Init");
	/* which PMIx removes from the environment, where it is of no use */
	const char *with = chosen(modules);
	(void)puts(version());
	(void)fflush(NULL);
	int result = init(process, NULL, 0);
	if (result != PMIX_SUCCESS && result != PMIX_ERR_UNREACH && result != PMIX_ERR_INVALID_NAMESPACE)
		wrong("PMIx cannot be initialized (%d)%s", result, with);
	printf("%s: can be initialized\n", pmix_name);
}

/* ---- MPI --------------------------------------------------------------------------------------------- */

/* The communicator of all ranks: a number with MPICH and its relatives, where a function reads the register's
 * lower half; the address of a variable with Open MPI. */
enum { MPICH_WORLD = 0x44000000 };

static void *opened_mpi(uintptr_t *world)
{
	static const char *const names[] = { "libmpi.so.40", "libmpi.so.12", "libmpich.so.12" };
	void *library = NULL;

	for (size_t i = 0; library == NULL && i < LENGTH(names); i++)
		library = dlopen(names[i], RTLD_NOW | RTLD_GLOBAL);
	if (library == NULL)
		wrong("MPI cannot be loaded: %s", dlerror());
	void *variable = dlsym(library, "ompi_mpi_comm_world");
	*world = variable != NULL ? (uintptr_t)variable : MPICH_WORLD;
	return library;
}

static void ask_mpi(char **argv)
{
	const char *node = getenv("SLURMD_NODENAME");
	uintptr_t world;

	snprintf(whose, sizeof whose, "%s: ", node != NULL ? node : "?");
	void *library = opened_mpi(&world);
	int (*init)(void *, void *) = needed(library, "MPI_Init");
	int (*rank_in)(uintptr_t, int *) = needed(library, "MPI_Comm_rank");
	int (*size_of)(uintptr_t, int *) = needed(library, "MPI_Comm_size");
	int (*barrier)(uintptr_t) = needed(library, "MPI_Barrier");
	int (*finalize)(void) = needed(library, "MPI_Finalize");
	const char *tasks = getenv("SLURM_STEP_NUM_TASKS");
	int rank = 0, size = 0;
	char count[16];

	(void)argv;
	if (init(NULL, NULL) != 0 || rank_in(world, &rank) != 0 || size_of(world, &size) != 0)
		wrong("MPI cannot be initialized");
	sprintf(count, "%d", size);
	if (tasks != NULL && strcmp(count, tasks) != 0)
		wrong("MPI sees rank %d of %d, in a step of %s tasks", rank, size, tasks);
	if (barrier(world) != 0 || finalize() != 0)
		wrong("MPI does not reach all ranks");
	printf("%srank %d of %d\n", whose, rank, size);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int values;
		void (*ask)(char **);
	} questions[] = { { "fabric", 1, ask_fabric },
			  { "net", 2, ask_net },
			  { "verbs", 0, ask_verbs },
			  { "nccl", 0, ask_nccl },
			  { "ucx", 0, ask_ucx },
			  { "from", 2, ask_from },
			  { "pmix", 0, ask_pmix },
			  { "mpi", 0, ask_mpi } };

	for (size_t i = 0; i < LENGTH(questions); i++) {
		if (argc == questions[i].values + 2 && strcmp(argv[1], questions[i].name) == 0) {
			questions[i].ask(argv + 2);
			(void)fflush(NULL);
			_exit(0);
		}
	}
	wrong("usage: ce-ask fabric PROVIDER | net LIBRARY DEVICE | verbs | nccl | ucx | from LIBRARY DIR |"
	      " pmix | mpi");
}
