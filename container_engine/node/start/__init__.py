"""Start one container: check, specify, create it with the guard, build the tasks' environment."""
