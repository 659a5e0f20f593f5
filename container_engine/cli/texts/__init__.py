"""Long texts that verbs print: pages of help, reports, the sources of a variable."""
