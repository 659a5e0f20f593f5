"""Reads and shows the traces that launches write (container_engine.node.report.trace)."""
