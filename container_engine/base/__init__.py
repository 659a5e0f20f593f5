"""Files, text, Slurm and errors: used by every room, imports none of them."""
