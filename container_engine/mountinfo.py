"""Read what /proc/PID/mountinfo says."""


def unescaped(field: bytes) -> bytes:
    """Return a field of mountinfo, in which blanks and backslashes are octal numbers."""
    first, *others = field.split(b"\\")
    return first + b"".join(bytes((int(o[:3], 8),)) + o[3:] for o in others)
