"""What a host needs to start containers, looked at one thing at a time."""
