"""Apply a plan's hooks on this node. A launch without hooks imports nothing of this room."""

# what the engine knows itself of hooks; each has a module code_NAME with a function `prepare`
CODE = frozenset(["pmix", "pytorch", "slurm", "nvidia_cuda_mps"])
