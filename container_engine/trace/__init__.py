"""Reading the traces that launches write (container_engine.node.report.trace), and showing them."""
