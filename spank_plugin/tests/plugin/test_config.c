#define _GNU_SOURCE
#include "plugin/config.h"

#include <string.h>

#include "harness.h"

static int read_one(struct ce_config *config, const char *argument, struct ce_error *err)
{
	char *argv[] = { (char *)argument };

	return ce_config_read(config, 1, argv, err);
}

TEST("plugstack.conf gives the prefix and the time limit")
{
	struct ce_config config = { .error = CE_ERROR_INIT };
	struct ce_error err = CE_ERROR_INIT;
	char prefix[] = "prefix=/opt/with space", timeout[] = "start_timeout=86400";
	char *argv[] = { prefix, timeout };

	CHECK_INT(ce_config_read(&config, 2, argv, &err), 0);
	CHECK_TEXT(config.plan, "/opt/with space/libexec/container-engine/plan");
	CHECK_TEXT(config.guard, "/opt/with space/libexec/container-engine/ce-guard");
	CHECK_INT(config.start_timeout_s, 86400);
	ce_config_clear(&config);
	CHECK(config.plan == NULL && config.guard == NULL);
	ce_config_clear(&config);
}

TEST("tasks gain no privileges unless plugstack.conf lets them")
{
	static const struct {
		const char *argument;
		int may_gain;
	} cases[] = { { "prefix=/opt", 0 }, { "no_new_privs=on", 0 }, { "no_new_privs=off", 1 } };

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct ce_config config = { .error = CE_ERROR_INIT };
		struct ce_error err = CE_ERROR_INIT;
		CHECK_INT(read_one(&config, cases[i].argument, &err), 0);
		CHECK_INT(config.may_gain, cases[i].may_gain);
		ce_config_clear(&config);
		CHECK_INT(config.may_gain, 0);
	}
	struct ce_config config = { .error = CE_ERROR_INIT };
	struct ce_error err = CE_ERROR_INIT;
	CHECK_INT(read_one(&config, "no_new_privs=no", &err), -1);
	CHECK_TEXT(ce_error_text(&err), "plugstack.conf: no_new_privs=no: must be on or off");
	ce_error_clear(&err);
	ce_config_clear(&config);
}

TEST("the audit goes to syslog, to a file by its absolute path, or nowhere")
{
	static const char *const bad[] = { "audit=", "audit=log", "audit=./log", "audit=Syslog" };
	struct ce_config config = { .error = CE_ERROR_INIT };
	struct ce_error err = CE_ERROR_INIT;

	CHECK_INT(read_one(&config, "audit=syslog", &err), 0);
	CHECK_TEXT(config.audit, "syslog");
	ce_config_clear(&config);
	CHECK_INT(read_one(&config, "audit=/var/log/ce audit", &err), 0);
	CHECK_TEXT(config.audit, "/var/log/ce audit");
	ce_config_clear(&config);
	CHECK(config.audit == NULL);
	CHECK_INT(read_one(&config, "prefix=/opt", &err), 0);
	CHECK(config.audit == NULL);
	ce_config_clear(&config);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		CHECK_INT(read_one(&config, bad[i], &err), -1);
		CHECK_CONTAINS(ce_error_text(&err), "must be 'syslog' or an absolute path");
		ce_error_clear(&err);
		ce_config_clear(&config);
	}
}

TEST("without arguments there are defaults")
{
	struct ce_config config = { .error = CE_ERROR_INIT };
	struct ce_error err = CE_ERROR_INIT;

	CHECK_INT(ce_config_read(&config, 0, NULL, &err), 0);
	CHECK_TEXT(config.plan, "/opt/container-engine/libexec/container-engine/plan");
	CHECK_INT(config.start_timeout_s, 300);
	ce_config_clear(&config);
}

TEST("a misspelt argument is refused by its name")
{
	struct ce_config config = { .error = CE_ERROR_INIT };
	struct ce_error err = CE_ERROR_INIT;

	CHECK_INT(read_one(&config, "prefx=/opt", &err), -1);
	CHECK_TEXT(ce_error_text(&err), "plugstack.conf: unknown argument 'prefx=/opt'");
	ce_error_clear(&err);
	ce_config_clear(&config);
}

TEST("a prefix that is not absolute is refused")
{
	static const char *const bad[] = { "prefix=", "prefix=opt", "prefix=./x" };

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct ce_config config = { .error = CE_ERROR_INIT };
		struct ce_error err = CE_ERROR_INIT;
		CHECK_INT(read_one(&config, bad[i], &err), -1);
		CHECK_CONTAINS(ce_error_text(&err), "must be an absolute path");
		ce_error_clear(&err);
		ce_config_clear(&config);
	}
}

TEST("a time limit must be a number from 1 to 86400")
{
	static const char *const bad[] = { "",	  "0",	   "-1",    "86401",
					   "1.5", "10s",   "ten",   "99999999999999999999",
					   "0x",  "1 000", "1e3" };

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct ce_config config = { .error = CE_ERROR_INIT };
		struct ce_error err = CE_ERROR_INIT;
		char argument[64] = "start_timeout=";
		CHECK_INT(read_one(&config, strcat(argument, bad[i]), &err), -1);
		CHECK_CONTAINS(ce_error_text(&err), "must be 1 to 86400 seconds");
		CHECK_CONTAINS(ce_error_text(&err), bad[i]);
		ce_error_clear(&err);
		ce_config_clear(&config);
	}
}

TEST("a seccomp profile for tasks is named by its absolute path")
{
	struct ce_config config = { .error = CE_ERROR_INIT };
	struct ce_error err = CE_ERROR_INIT;

	CHECK_INT(read_one(&config, "prefix=/opt", &err), 0);
	CHECK(config.seccomp == NULL);
	ce_config_clear(&config);
	CHECK_INT(read_one(&config, "seccomp=/etc/ce/tasks.bpf", &err), 0);
	CHECK_TEXT(config.seccomp, "/etc/ce/tasks.bpf");
	ce_config_clear(&config);
	CHECK_INT(read_one(&config, "seccomp=tasks.bpf", &err), -1);
	CHECK_TEXT(ce_error_text(&err), "plugstack.conf: seccomp=tasks.bpf: must be an absolute path");
	ce_error_clear(&err);
	ce_config_clear(&config);
}
