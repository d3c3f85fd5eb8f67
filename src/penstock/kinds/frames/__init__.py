"""`frames:` channels: large arrays passed by reference."""
