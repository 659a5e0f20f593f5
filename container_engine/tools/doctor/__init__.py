"""Checks, one by one, that a host has everything it needs to start containers."""
