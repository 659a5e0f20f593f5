"""Gives advice on valid environments: one module per topic, each with a function of a Subject."""
