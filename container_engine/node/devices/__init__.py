"""Resolve devices: CDI files, patterns, and what the site gives to every container."""
