"""How fast the engine is, beside other ways to start a container: `make bench`."""
