"""Find what runs in a container that exists, and run more programs in it."""
