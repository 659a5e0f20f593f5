"""Apply a plan's hooks on this node. A launch without hooks imports nothing of this room."""

# hooks that need more than data; each has a module code_NAME with a function `prepare`
CODE = frozenset(["pmix", "pytorch", "slurm", "ssh", "nvidia_cuda_mps"])
