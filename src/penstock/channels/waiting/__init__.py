"""Waiting: in event loops, on several descriptors, for the next message of an iteration. Knows no channel file."""
