"""Images: references, the contents of SquashFS files, imports from registries."""
