"""Apply a plan's hooks on this node. A launch without hooks imports nothing of this room."""
