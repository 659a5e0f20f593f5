"""Images: what a user may write, what a SquashFS file says of itself, imports from registries."""
