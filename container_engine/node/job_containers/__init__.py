"""Start and join containers that live with their job, for its later steps."""
