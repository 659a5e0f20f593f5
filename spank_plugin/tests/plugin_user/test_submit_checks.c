/* Options on srun's command line that look as if they chose a container and do not. */
#define _GNU_SOURCE
#include "plugin_user/submit_checks.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io.h"
#include "fake_spank.h"
#include "harness.h"
#include "installation.h"

static char note[CE_NOTE_SIZE];
static enum ce_note kind;

/* Return the note for this command line; "" for none. */
static const char *said_of(const char *words)
{
	char line[256];
	size_t size = strlen(words) + 1;

	snprintf(line, sizeof line, "%s", words);
	for (size_t i = 0; i < size; i++)
		line[i] = line[i] == ' ' ? '\0' : line[i];
	kind = ce_check_misplaced(&(const struct ce_line){ line, size }, note);
	return kind != CE_NOTE_NONE ? note : "";
}

TEST("--environment after the command is reported to choose no container")
{
	CHECK_CONTAINS(said_of("srun -n 2 -l python3 train.py --environment=demo"),
		       "--environment=demo comes after the command and is passed to it: "
		       "it selects no container");
	CHECK_CONTAINS(said_of("srun hostname --edf=demo"), "--edf=demo comes after the command");
	CHECK_CONTAINS(said_of("srun --exclusive true --environment=demo"), "comes after the command");
	CHECK_TEXT(said_of("srun --environment=demo hostname"), "");
	CHECK_TEXT(said_of("srun -n 1 --environment=demo -- hostname -s"), "");
	CHECK_TEXT(said_of("srun -n1 true : -n1 --environment=demo true"), "");
	CHECK_TEXT(said_of("srun --pty ce run --environment=demo"), "");
	CHECK_TEXT(said_of("srun /usr/bin/srun --environment=demo true"), "");
	CHECK_TEXT(said_of("srun"), "");
}

TEST("it is with the name as a word of its own, in sbatch and salloc, and with the options of pyxis")
{
	CHECK_CONTAINS(said_of("srun hostname --environment demo"), "--environment comes after the command");
	CHECK_CONTAINS(said_of("srun hostname --edf demo"), "--edf comes after the command");
	CHECK_CONTAINS(said_of("srun -- hostname --environment demo"), "--environment comes after");
	CHECK_CONTAINS(said_of("srun hostname --container-image=x"), "--container-image=x comes after");
	CHECK_CONTAINS(said_of("srun hostname --container-image x"), "--container-image comes after");
	CHECK_CONTAINS(said_of("srun hostname --no-container-mount-home"), "comes after the command");
	CHECK_CONTAINS(said_of("salloc -N1 hostname --environment=demo"), "(options of salloc go before");
	CHECK_CONTAINS(said_of("/usr/bin/sbatch -N1 none.sh --environment=demo"),
		       "--environment=demo comes after the script and is passed to it: it selects no "
		       "container (options of sbatch go before the script)");
	CHECK_CONTAINS(said_of("sbatch --parsable none.sh --edf demo"), "--edf comes after the script");
	CHECK_CONTAINS(said_of("sbatch -W --requeue none.sh --container-name=k"), "comes after the script");
	CHECK_TEXT(said_of("srun -W 5 --environment=demo hostname"), "");
	CHECK_TEXT(said_of("sbatch --environment demo none.sh"), "");
	CHECK_TEXT(said_of("sbatch --wrap x --container-image=x"), "");
	CHECK_TEXT(said_of("srun podman --environmental --container-imagery=x --container --env=A"), "");
}

/* Return the note for a batch script with this text. */
static const char *said_of_script(const char *text)
{
	CHECK_INT(chdir(test_directory()), 0);
	test_file(test_directory(), "job.sh", text, 0644);
	return said_of("sbatch -N1 job.sh");
}

TEST("a line #SBATCH below the first command, which sbatch does not read, is reported")
{
	CHECK_CONTAINS(said_of_script("#!/bin/sh\n#SBATCH -N1\n\nset -e\n#SBATCH --environment=demo\n"),
		       "job.sh:5: '#SBATCH --environment=demo' comes after the first command, where sbatch "
		       "reads no more options: it selects no container (move the line up)");
	CHECK_INT(kind, CE_NOTE_WARNING);
	CHECK_CONTAINS(said_of_script("#!/bin/sh\necho\n#SBATCH -N1\t--container-image x"), "job.sh:3: ");
	CHECK_CONTAINS(said_of_script("#!/bin/sh\n  \n # note\necho\n#SBATCH --edf demo\n"), "--edf'");
	CHECK_CONTAINS(said_of("sbatch -- job.sh"), "job.sh:5: ");
	CHECK_TEXT(said_of("salloc job.sh"), "");
	CHECK_TEXT(said_of_script("#!/bin/sh\n\n# note\n#SBATCH --environment=demo\nsrun x\n"), "");
	CHECK_TEXT(said_of_script("#!/bin/sh\necho\n#SBATCH -N1 # --environment=demo\n"), "");
	CHECK_TEXT(said_of_script("#!/bin/sh\necho\n##SBATCH --environment=demo\n#SBATCH\n"), "");
	/* a script that writes another one */
	CHECK_TEXT(said_of_script("#!/bin/sh\ncat >b <<E\n#!/bin/sh\n#SBATCH --environment=demo\nE\n"), "");
	CHECK_TEXT(said_of_script(""), "");
}

TEST("a line # SBATCH, a comment, is reported unless something else selects a container")
{
	static const char comment[] = "#!/bin/sh\n# SBATCH --environment=demo\nhostname\n";

	CHECK_CONTAINS(said_of_script(comment),
		       "job.sh:2: '# SBATCH --environment=demo' is a comment, which sbatch does not read: it "
		       "selects no container (remove the blank; ## leaves a line out)");
	CHECK_INT(kind, CE_NOTE_WARNING);
	CHECK_TEXT(said_of("sbatch --environment=demo job.sh"), "");
	CHECK_CONTAINS(said_of_script("#!/bin/sh\necho\n#\t SBATCH -N1 --edf demo"), "job.sh:3: ");
	CHECK_CONTAINS(said_of_script("# SBATCH --edf=a\necho\n#SBATCH --edf=b\n"), "comes after the first");
	CHECK_TEXT(said_of_script("#!/bin/sh\n# SBATCH --edf=a\n#SBATCH --edf=b\necho\n"), "");
	CHECK_TEXT(said_of_script("#!/bin/sh\n## SBATCH --edf=a\n# SBATCH -N1\n # SBATCH --edf=a\n"), "");
}

TEST("the script of sbatch may be its input, if that is a file")
{
	said_of_script("#!/bin/sh\necho\n#SBATCH --environment=demo\n");
	CE_AUTO_FD file = open("job.sh", O_RDONLY | O_CLOEXEC), input = dup(STDIN_FILENO);
	CHECK_INT(dup2(file, STDIN_FILENO), STDIN_FILENO);
	CHECK_INT(unlink("job.sh"), 0);
	CHECK_CONTAINS(said_of("sbatch -N1"), "/dev/stdin:3: '#SBATCH --environment=demo' comes after");
	CHECK_INT(lseek(STDIN_FILENO, 0, SEEK_CUR), 0);
	CHECK_TEXT(said_of("sbatch --wrap x"), "");
	CHECK_TEXT(said_of("salloc"), "");
	CHECK_INT(dup2(input, STDIN_FILENO), STDIN_FILENO);
}

TEST("Slurm's own option for OCI bundles is reported unless it names a bundle")
{
	CHECK_INT(chdir(test_directory()), 0);
	CHECK_CONTAINS(said_of("srun --container=demo hostname"),
		       "--container is an option of Slurm's own, for OCI bundles, which 'demo' is not: write "
		       "--environment=demo");
	CHECK_CONTAINS(said_of("srun -N1 --container demo hostname"), "which 'demo' is not");
	CHECK_TEXT(said_of("srun --container-image=demo hostname"), "");
	CHECK_TEXT(said_of("srun podman --container=demo"), "");
	CHECK_INT(mkdir("bundle", 0700), 0);
	test_file(test_directory(), "bundle/config.json", "", 0644);
	CHECK_TEXT(said_of("srun --container=bundle hostname"), "");
}

TEST("Slurm's own option with the name or the file of an environment is refused")
{
	CHECK(said_of("srun --container=no-bundle hostname")[0] != '\0' && kind == CE_NOTE_REFUSAL);
	CHECK(said_of("srun --container ./demo.toml hostname")[0] != '\0' && kind == CE_NOTE_REFUSAL);
	CHECK_CONTAINS(said_of("srun --container=demo true --environment=demo"), "for OCI bundles");
	CHECK_INT(kind, CE_NOTE_REFUSAL);
	CHECK(said_of("srun --container=/on/the/node hostname")[0] != '\0' && kind == CE_NOTE_WARNING);
	CHECK(said_of("srun hostname --edf=demo")[0] != '\0' && kind == CE_NOTE_WARNING);
}

static void call_without_environment(spank_context_t context)
{
	fake_reset(context);
	CHECK_INT(init_plugin(), SLURM_SUCCESS);
	setenv("CE_ENVIRONMENT_NAME", "outer", 1);
	setenv("CE_IMAGE", "/images/outer.sqsh", 1);
	CHECK_INT(slurm_spank_init_post_opt(fake_spank(), 0, NULL), SLURM_SUCCESS);
	CHECK(getenv("CE_ENVIRONMENT_NAME") == NULL && getenv("CE_IMAGE") == NULL);
	slurm_spank_exit(fake_spank(), 0, NULL);
}

TEST("a step on the host that a container's task starts has no variables of that container")
{
	install("exit 1");
	call_without_environment(S_CTX_LOCAL);
	CHECK_CONTAINS(fake_job.log, "this step runs on the host, not in 'outer', where srun was called");
	call_without_environment(S_CTX_ALLOCATOR);
	CHECK_TEXT(fake_job.log, "");
}
