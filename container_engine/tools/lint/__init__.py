"""Gives advice on valid environments: a module per topic, with functions of a Subject."""
