"""The steps of jobs that run in containers, as verbs find and join them."""
