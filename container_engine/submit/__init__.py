"""Turns the name of an environment into a plan on the submit host. Prints nothing."""
