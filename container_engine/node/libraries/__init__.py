"""Choose which of the host's libraries enter a container, and check that they fit its image."""
