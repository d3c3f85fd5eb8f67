"""Channels by name: URIs, patterns of URIs, channels as values, and the kind that opens a URI. Opens no file."""
