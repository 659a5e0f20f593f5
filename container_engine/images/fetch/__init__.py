"""Fetch images from registries: names, logins, blobs, imports."""
