"""The hook catalog: the known hooks, described as data."""
