"""The formats of the Open Container Initiative and of CDI, under the specifications' names."""
