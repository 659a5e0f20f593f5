"""Containers that live with their job: later steps go on with them, or join them."""
