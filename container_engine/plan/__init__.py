"""What a launch will do: from an effective EDF to one frozen, versioned document. Pure.

This file stays empty of imports: the quick way to a remembered plan (`quick.py`) passes through it.
"""
