"""All that `ce` prints: results on stdout, messages and progress on stderr, JSON."""
