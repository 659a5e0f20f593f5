"""Generation of CDI files for the devices of a node, and their comparison with it."""
