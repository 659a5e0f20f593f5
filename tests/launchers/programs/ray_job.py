"""Run functions on a Ray cluster that `ray start` or `ray symmetric-run` has made."""

import os
import platform

import ray


def report(number: int) -> str:
    ident = platform.freedesktop_os_release()["ID"]
    return f"task {number} on {os.environ['SLURMD_NODENAME']} in {ident}"


ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), logging_level="ERROR")
print("nodes", len([one for one in ray.nodes() if one["Alive"]]))
for number, node in enumerate(("head", "worker")):
    there = ray.remote(report).options(resources={node: 1})
    print(ray.get(there.remote(number)))
