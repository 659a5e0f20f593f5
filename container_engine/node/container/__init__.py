"""Describe one container: its parts, its environment, and the guard's operations that make it."""
