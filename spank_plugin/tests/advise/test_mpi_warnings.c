/* Programs that use MPI, behind a command that starts them. */
#define _GNU_SOURCE
#include "advise/advise.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"

/* Return the program that uses MPI in this command; "" for none. */
static const char *found(const char *one, const char *two, const char *three, const char *four)
{
	static char name[CE_WORD_SIZE];
	char *argv[] = { strdup(one), two ? strdup(two) : NULL, three ? strdup(three) : NULL,
			 four ? strdup(four) : NULL, NULL };
	int argc = 0;

	while (argv[argc] != NULL)
		argc++;
	name[0] = '\0';
	int is = ce_wraps_mpi(test_directory(), one, argc, argv, name);
	for (int i = 0; i < 4; i++)
		free(argv[i]);
	CHECK_INT(is, name[0] != '\0');
	return name;
}

static void write_script(const char *text)
{
	test_file(test_directory(), "script", text, 0755);
}

TEST("a program with MPI is found behind a wrapper, in a shell's text and in a script")
{
	CHECK_INT(chdir(test_directory()), 0);
	test_build("-shared -fPIC -Wl,-soname,libmpi.so.40 -o libmpi.so");
	test_build("-shared -fPIC -Wl,--no-as-needed -L. -lmpi -o hello");
	CHECK_TEXT(found("env", "X=1", "./hello", NULL), "./hello");
	CHECK_TEXT(found("/usr/bin/numactl", "-N", "0", "hello"), "hello");
	CHECK_TEXT(found("bash", "-c", "cd run && exec ./hello --input x", NULL), "./hello");
	CHECK_TEXT(found("bash", "-lc", "OMP_NUM_THREADS=2 hello;", NULL), "hello");
	CHECK_TEXT(found("time", "sh", "-c", "./hello"), "./hello");
	write_script("#!/bin/bash\n# ./other\necho begins\nexec ./hello \"$@\"\n");
	CHECK_TEXT(found("./script", NULL, NULL, NULL), "./hello");
	CHECK_TEXT(found("bash", "-e", "./script", "one"), "./hello");
	CHECK_TEXT(found("env", "./script", NULL, NULL), "./hello");
}

TEST("programs that an mpirun starts are not taken for ranks without the others")
{
	CHECK_INT(chdir(test_directory()), 0);
	test_build("-shared -fPIC -Wl,-soname,libmpi.so.40 -o libmpi.so");
	test_build("-shared -fPIC -Wl,--no-as-needed -L. -lmpi -o hello");
	test_file(".", "mpiexec.hydra", "#!/bin/sh\n", 0755);
	CHECK_TEXT(found("sh", "-c", "mpiexec.hydra -launcher ssh -n 2 ./hello", NULL), "");
	CHECK_TEXT(found("env", "./mpiexec.hydra", "./hello", NULL), "");
	write_script("#!/bin/sh\nexec mpiexec.hydra -np 2 ./hello\n");
	CHECK_TEXT(found("./script", NULL, NULL, NULL), "");
	CHECK_TEXT(found("sh", "-c", "./hello mpiexec.hydra.log", NULL), "./hello");
}

TEST("other commands are not taken for MPI")
{
	CHECK_INT(chdir(test_directory()), 0);
	test_build("-shared -fPIC -Wl,-soname,libmpi.so.40 -o libmpi.so");
	test_build("-shared -fPIC -Wl,--no-as-needed -L. -lmpi -o hello");
	test_build("-shared -fPIC -Wl,--no-as-needed -o plain");
	CHECK_TEXT(found("env", "X=1", "./plain", NULL), "");
	CHECK_TEXT(found("ls", "./hello", NULL, NULL), "");
	CHECK_TEXT(found("./plain", "./hello", NULL, NULL), "");
	CHECK_TEXT(found("bash", "-c", "$PROGRAM ./absent", NULL), "");
	CHECK_TEXT(found("bash", "-c", NULL, NULL), "");
	CHECK_TEXT(found("bash", NULL, NULL, NULL), "");
	write_script("#!/bin/bash\n  # exec ./hello\n");
	CHECK_TEXT(found("./script", NULL, NULL, NULL), "");
	write_script("./hello\n");
	CHECK_TEXT(found("./script", NULL, NULL, NULL), "");
}

TEST("an mpirun is found in a shell's text and in a script, unless that chooses how processes start")
{
	char name[CE_WORD_SIZE] = "", path[512];
	char bash[] = "bash", option[] = "-c", text[] = "cd run; mpirun -np 2 ./hello", script[] = "./script";
	char *argv[] = { bash, option, text, NULL }, *alone[] = { script, NULL };

	CHECK_INT(chdir(test_directory()), 0);
	test_file(".", "mpiexec.hydra", "#!/bin/sh\n", 0755);
	CHECK_INT(symlink("mpiexec.hydra", "mpirun"), 0);
	snprintf(path, sizeof path, "/absent:%s", test_directory());
	CHECK_INT(ce_wraps_mpirun(path, "/bin/bash", 3, argv, name), 1);
	CHECK_TEXT(name, "mpirun");
	write_script("#!/bin/sh\nexec ./mpirun -np 2 ./hello\n");
	CHECK_INT(ce_wraps_mpirun(path, script, 1, alone, name), 1);
	CHECK_TEXT(name, "./mpirun");
	write_script("#!/bin/sh\nexec mpirun -launcher fork -np 2 ./hello\n");
	CHECK_INT(ce_wraps_mpirun(path, script, 1, alone, name), 0);
	write_script("#!/bin/sh\necho no mpirunner\n");
	CHECK_INT(ce_wraps_mpirun(path, script, 1, alone, name), 0);
	CHECK_INT(ce_wraps_mpirun(path, "./mpirun", 1, alone, name), 0);
}
