"""An application of Hydra's, for its launcher of submitit."""

import os
import platform

import hydra
from omegaconf import DictConfig


def report(config: DictConfig) -> None:
    ident = platform.freedesktop_os_release()["ID"]
    number, node = os.environ["SLURM_PROCID"], os.environ["SLURMD_NODENAME"]
    with open(f"{os.environ['REPORTS']}/{config.x}", "w") as file:
        file.write(f"task {number} on {node} in {ident}\n")


hydra.main(version_base=None, config_path=None)(report)()
