"""Keeping recordings: verify, repair, purge, push to an object storage."""
