"""The administrator's configuration for all users: its model and its files."""
