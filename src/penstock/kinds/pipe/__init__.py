"""`pipe:` channels: each message goes to one of its readers, and the sockets of ZeroMQ's patterns."""
