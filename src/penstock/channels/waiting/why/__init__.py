"""Waits on channels: what shared memory says of them, what the processes do, and words for both."""
