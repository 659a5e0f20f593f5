"""Jobs, nodes and settings of Slurm, from its commands and its files."""
