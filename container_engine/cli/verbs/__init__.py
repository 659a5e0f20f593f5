"""The verbs of `ce`: a module for each; `shell` is in `run`, `logout` in `login`."""
