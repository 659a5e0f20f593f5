"""Benchmarks of the engine beside other ways to start a container: `make bench`."""
