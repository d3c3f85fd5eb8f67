"""`udp:` channels: a log across machines."""
