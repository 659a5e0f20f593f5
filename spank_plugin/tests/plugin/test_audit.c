#define _GNU_SOURCE
#include "plugin/audit.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "common/io.h"
#include "harness.h"

static char logged[512];

/* replaces the C library's */
void syslog(int priority, const char *format, ...)
{
	va_list arguments;

	CHECK_INT(priority, LOG_AUTHPRIV | LOG_INFO);
	va_start(arguments, format);
	vsnprintf(logged, sizeof logged, format, arguments);
	va_end(arguments);
}

#define LINE \
	"job=17 step=3 uid=1000 " \
	"plan-sha256=ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad " \
	"plan-bytes=3 user-says-image=-"

static struct ce_audit audit;
static struct ce_error err = CE_ERROR_INIT;

static void note(void)
{
	ce_audit_note(&audit, 17, 3, 1000, "abc");
}

static char *content(const char *path)
{
	return ce_read_path(AT_FDCWD, path, 0, 4096, NULL);
}

static void check_hash(const char *data, size_t size, const char *wanted)
{
	char text[CE_SHA256_TEXT];

	ce_sha256(data, size, text);
	CHECK_TEXT(text, wanted);
}

TEST("the hash is SHA-256, for every length of the last block")
{
	static char many[1000000];

	check_hash("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	check_hash("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	check_hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
		   "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
	memset(many, 'a', sizeof many);
	check_hash(many, 55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
	check_hash(many, 63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34");
	check_hash(many, 64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
	check_hash(many, sizeof many, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST("the line of a step is written once, after others, to a file that only root can write")
{
	const char *path = test_path(test_directory(), "audit.log");
	struct stat st;

	note();
	CHECK_INT(ce_audit_write(&audit, path, &err), 0);
	CHECK_INT(ce_audit_write(&audit, path, &err), 0);
	note();
	CHECK_INT(ce_audit_write(&audit, path, &err), 0);
	CHECK_INT(stat(path, &st), 0);
	CHECK_INT(st.st_mode & 07777, 0600);
	CE_AUTO_FREE char *text = content(path);
	CHECK(text != NULL);
	CHECK_CONTAINS(text, " " LINE "\n2");
	CHECK_INT(strlen(strchr(text, '\n') + 1), (size_t)(strchr(text, '\n') + 1 - text));
	CHECK(strchr(text, 'Z') == text + strlen("2026-11-23T11:42:36"));
}

TEST("the line of a step goes to syslog")
{
	note();
	CHECK_INT(ce_audit_write(&audit, "syslog", &err), 0);
	CHECK_TEXT(logged, "container_engine: " LINE);
	logged[0] = '\0';
	CHECK_INT(ce_audit_write(&audit, "syslog", &err), 0);
	CHECK_TEXT(logged, "");
}

TEST("a site without the setting, or a step without a plan, has no line")
{
	note();
	CHECK_INT(ce_audit_write(&audit, NULL, &err), 0);
	audit = (struct ce_audit){ .is_due = 0 };
	CHECK_INT(ce_audit_write(&audit, "syslog", &err), 0);
	CHECK_TEXT(logged, "");
}

static void refused(const char *path, const char *why)
{
	note();
	CHECK_INT(ce_audit_write(&audit, path, &err), -1);
	CHECK_CONTAINS(ce_error_text(&err), why);
	ce_error_clear(&err);
}

TEST("a file that another user could have put in place of the audit's is not written to")
{
	const char *directory = test_directory();
	const char *file = test_file(directory, "file", "", 0600);

	CHECK_INT(symlink(file, test_path(directory, "link")), 0);
	refused(test_path(directory, "link"), "symbolic links");
	CHECK_INT(mkfifo(test_path(directory, "fifo"), 0600), 0);
	refused(test_path(directory, "fifo"), "audit=");
	refused(test_path(directory, "none/x"), "No such file");
	refused("/dev/null", "not a file that only root can write to");
	CHECK_INT(chmod(file, 0660), 0);
	refused(file, "not a file that only root can write to");
	CHECK_INT(chmod(file, 0602), 0);
	refused(file, "not a file that only root can write to");
	CHECK_INT(chmod(file, 0600), 0);
	test_needs_root();
	CHECK_INT(chown(file, 1000, 0), 0);
	refused(file, "not a file that only root can write to");
	CE_AUTO_FREE char *text = content(file);
	CHECK_TEXT(text, "");
}

TEST("the image's name in the audit is marked as the user's statement, and cannot forge other fields")
{
	static const struct { const char *said, *wanted; } cases[] = {
		{ NULL, "-" },
		{ "", "-" },
		{ "sha256:0123456789abcdef", "sha256:0123456789abcdef" },
		{ "/store/a b.sqsh", "/store/a?b.sqsh" },
		{ "x\nroot job=1 uid=0\x1b[2J", "x?root?job?1?uid?0??2J" },
		{ "\xc3\xa9", "??" },
	};
	char wanted[512], path[CE_AUDIT_CLAIM + 64];

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		note();
		ce_audit_note_claim(&audit, cases[i].said);
		CHECK_INT(ce_audit_write(&audit, "syslog", &err), 0);
		snprintf(wanted, sizeof wanted, " user-says-image=%s", cases[i].wanted);
		CHECK_TEXT(strstr(logged, " user-says-image="), wanted);
	}
	memset(path, 'x', sizeof path - 1);
	memcpy(path + sizeof path - 6, "/last", 6);
	note();
	ce_audit_note_claim(&audit, path);
	CHECK_INT(strlen(audit.claim), CE_AUDIT_CLAIM - 1);
	CHECK_TEXT(audit.claim + CE_AUDIT_CLAIM - 6, "/last");
}
