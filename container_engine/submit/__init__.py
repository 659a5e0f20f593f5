"""From the name of an environment to a plan, on the host where a user submits. Prints nothing."""
