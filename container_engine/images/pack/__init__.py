"""Pack SquashFS files: merge layers, build Containerfiles, bound what archives unpack to."""
