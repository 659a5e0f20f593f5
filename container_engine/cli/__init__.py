"""The command `ce`. Others print and exit only where they take its place or are programs."""
