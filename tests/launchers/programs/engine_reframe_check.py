"""A check of ReFrame with the mixin of the page on the engine's API."""

import reframe as rfm
import reframe.utility.sanity as sn
from reframe_engine import InEnvironment


@rfm.simple_test
class ReportCheck(rfm.RunOnlyRegressionTest, InEnvironment):  # type: ignore[misc]
    """Each task reports itself."""

    valid_systems = ["*"]  # noqa: RUF012  # ReFrame's own attributes
    valid_prog_environs = ["*"]  # noqa: RUF012
    num_tasks = 2
    num_tasks_per_node = 1
    executable = "sh"

    @run_before("run")  # type: ignore[name-defined,untyped-decorator]  # noqa: F821
    def say(self) -> None:
        script = '. /etc/os-release; echo "task $SLURM_PROCID on $SLURMD_NODENAME in $ID"'
        self.executable_opts = ["-c", f"'{script}'"]

    @sanity_function  # type: ignore[name-defined,untyped-decorator]  # noqa: F821
    def both_report(self) -> object:
        return sn.assert_eq(sn.count(sn.extractall(r"task \d on n\d in ce-demo", self.stdout)), 2)
