"""What happens on a node. Everything that `node` imports is the standard library's cheap part."""
