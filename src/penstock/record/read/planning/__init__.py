"""What a reader of an archive reads, and in which order: recordings, streams, ranges of segments. Reads no message."""
