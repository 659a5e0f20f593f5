"""A check of ReFrame that runs in an environment, as CSCS's checks of the engine do."""

import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class ReportCheck(rfm.RunOnlyRegressionTest):  # type: ignore[misc]
    """Each task reports itself."""

    environment = variable(str)  # type: ignore[name-defined]  # noqa: F821  # ReFrame's own
    valid_systems = ["*"]  # noqa: RUF012  # ReFrame's own attributes
    valid_prog_environs = ["*"]  # noqa: RUF012
    num_tasks = 2
    num_tasks_per_node = 1
    executable = "sh"

    @run_before("run")  # type: ignore[name-defined,untyped-decorator]  # noqa: F821
    def in_container(self) -> None:
        script = '. /etc/os-release; echo "task $SLURM_PROCID on $SLURMD_NODENAME in $ID"'
        self.executable_opts = ["-c", f"'{script}'"]
        self.job.launcher.options = [f"--environment={self.environment}"]

    @sanity_function  # type: ignore[name-defined,untyped-decorator]  # noqa: F821
    def both_report(self) -> object:
        return sn.assert_eq(sn.count(sn.extractall(r"task \d on n\d in ce-demo", self.stdout)), 2)
