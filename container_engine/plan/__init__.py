"""What a launch will do: from an effective EDF to one frozen, versioned document. Pure.

This file imports nothing: the quick way to a remembered plan (`submit/quick.py`) reads it.
"""

# stands in a plan where each launch puts a secret of its own
SECRET = "@new@"
