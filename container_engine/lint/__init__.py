"""Advice on environments that are valid: one module per matter, each a function of a Subject."""
