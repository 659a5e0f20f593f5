"""Save running containers as images, for `ce save`."""
