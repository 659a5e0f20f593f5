"""The Environment Definition File: turns a user's text into one effective, typed value."""
