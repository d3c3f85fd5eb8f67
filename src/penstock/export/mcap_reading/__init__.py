"""Reads MCAP files: every record and every checksum, then the messages in the order of their log times."""
