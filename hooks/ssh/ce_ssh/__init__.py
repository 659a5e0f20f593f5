"""Run the ssh server of a container: keys, port, and the record that clients read."""
