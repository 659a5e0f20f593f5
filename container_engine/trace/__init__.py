"""Reading the traces that launches write (container_engine.launch.trace), and showing them."""
