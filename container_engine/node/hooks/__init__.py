"""What a plan's hooks change on this node. Imported only for plans that have hooks."""

# Hooks of which data cannot say everything; each has a module code_NAME with a function `prepare`.
CODE = frozenset(["pmix", "pytorch", "slurm", "ssh", "nvidia_cuda_mps"])
