"""Recorders: from channels into recordings, in threads and processes of their own."""
