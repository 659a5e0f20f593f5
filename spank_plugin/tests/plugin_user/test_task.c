#include "plugin_user/task.h"

#include "harness.h"

TEST("a script starts steps where a word of a line does, however it is written")
{
	CHECK(ce_script_starts_steps("#!/bin/bash\nsrun hostname\n"));
	CHECK(ce_script_starts_steps("time /usr/bin/srun -n2 a"));
	CHECK(ce_script_starts_steps("x=$(srun a)\n"));
	CHECK(ce_script_starts_steps("LAUNCH=\"srun\""));
	CHECK(ce_script_starts_steps("\tmpirun -n 2 a\n"));
	CHECK(ce_script_starts_steps("ce run x -- a\n"));
}

TEST("comments, options of sbatch and words that only look alike start none")
{
	CHECK(!ce_script_starts_steps(""));
	CHECK(!ce_script_starts_steps("#!/bin/bash\n#SBATCH --environment=x\npython3 train.py\n"));
	CHECK(!ce_script_starts_steps("  # srun a\n"));
	CHECK(!ce_script_starts_steps("./mysrun; srun_it; srun-all; a.srun; srun.sh\n"));
	CHECK(!ce_script_starts_steps("echo\n#\n\n"));
}
