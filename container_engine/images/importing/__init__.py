"""Import images into stores and files: from registries, and from this host."""
