"""Keep images: the store's files, locks, uses, and its care."""
