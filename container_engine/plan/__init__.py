"""Plans a launch: turns an effective EDF into one frozen, versioned document. Pure.

This file imports nothing, because the fast path to a remembered plan (`submit/quick.py`) loads it.
"""

# placeholder in a plan, which each launch replaces with a secret of its own
SECRET = "@new@"
