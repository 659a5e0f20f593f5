"""Start a container or join a running one: the launcher, its steps, and the answer of a start."""
