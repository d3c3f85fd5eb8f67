"""Recorders: from channels into recordings, in threads and child processes."""
