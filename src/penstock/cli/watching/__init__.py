"""Commands that watch channels: for people, for other programs, and for what happens."""
