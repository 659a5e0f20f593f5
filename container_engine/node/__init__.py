"""Start containers on a node. Imports only the cheap part of the standard library."""
