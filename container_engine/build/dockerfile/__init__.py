"""Build images from Containerfiles, for `ce build`."""
