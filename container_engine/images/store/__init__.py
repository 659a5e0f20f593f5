"""Keep images: the store's files and locks, images in use, checks and cleanup."""
