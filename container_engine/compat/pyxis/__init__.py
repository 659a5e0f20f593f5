"""Options and variables of pyxis, read as options over an environment."""
