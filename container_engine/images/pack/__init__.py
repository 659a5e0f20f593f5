"""Pack layers, or a directory, into SquashFS files."""
