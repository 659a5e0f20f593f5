"""Start containers on a node. Most starts import only the cheap part of the standard library."""
