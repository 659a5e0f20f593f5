"""Report a launch: its errors with their details, and its trace."""
