"""A real Slurm cluster of N nodes on one machine, to try the engine and to test it.

Standard library only: it runs before anything is installed, with the system's own Python.
"""
