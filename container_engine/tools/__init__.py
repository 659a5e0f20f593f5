"""Tools that explain this host, environments, traces and errors; the core imports none of them."""
