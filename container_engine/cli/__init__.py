"""The command `ce`. Others print and exit only in programs of their own or in its place."""
