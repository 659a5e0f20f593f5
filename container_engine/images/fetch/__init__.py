"""Fetch images from registries: names, logins, manifests, blobs."""
