"""The weight of pages in the search of the site, where it is less than usual.

The records of the project have every word of the field, and would hide the pages for users.
"""

# Beginnings of paths; the first that fits is used.
_WEIGHTS = {
    "docs/design/": 0.1,
    "docs/guide/errors/": 0.4,
    "docs/adding.md": 0.1,
    # it has the words of many pages: containers that start, fail, end
    "docs/admin/podman.md": 0.2,
    "docs/admin/install-other.md": 0.4,
    "docs/benchmarks.md": 0.1,
    "docs/dependencies.md": 0.1,
    "docs/reference/api.md": 0.1,
    "docs/releasing.md": 0.1,
    "CHANGELOG.md": 0.1,
    "CONTRIBUTING.md": 0.1,
    "spank_plugin/": 0.1,
    "hooks/": 0.3,
    "sandbox/": 0.3,
}


def weight(page: str) -> float:
    """Return the weight of a page, from its path in the repository."""
    return next((number for start, number in _WEIGHTS.items() if page.startswith(start)), 1.0)
