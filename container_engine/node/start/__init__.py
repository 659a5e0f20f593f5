"""Start one container: check, specify, run Podman under the guard, build the tasks' environment."""
