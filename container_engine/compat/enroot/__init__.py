"""The command `enroot`, for scripts that call it."""
