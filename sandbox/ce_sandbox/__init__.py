"""Slurm cluster of N nodes on one machine, to try and to test the engine.

Uses only the standard library: it runs before anything is installed, with the system's Python.
"""
