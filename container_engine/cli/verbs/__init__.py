"""The verbs of `ce`: a module for each, and for `ce hooks check` and `ce hooks test`."""
