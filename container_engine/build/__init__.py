"""Images made on a login node: from Dockerfiles, and from saved containers."""
