"""`sync:` channels: a lossless queue that every member reads."""
