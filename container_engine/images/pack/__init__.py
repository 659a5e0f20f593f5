"""Pack SquashFS files: merge layers, build Containerfiles, limit what archives unpack to."""
