"""The Environment Definition File: what a user writes, from text to one effective, typed value."""
