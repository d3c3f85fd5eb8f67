"""Serving: an archive's files and messages over Arrow Flight, to be read."""
