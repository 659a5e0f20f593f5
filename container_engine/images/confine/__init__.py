"""Confine programs that read images of others, or build them."""
