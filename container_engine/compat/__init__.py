"""Commands, options and variables of other tools, and their meaning here."""
