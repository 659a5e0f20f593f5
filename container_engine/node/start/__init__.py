"""Start a container or join a running one: the launcher, its steps, and the memo of a start."""
