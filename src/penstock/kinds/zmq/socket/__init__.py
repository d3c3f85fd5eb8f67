"""One socket of ZeroMQ: its context, address, connections, descriptors, and the base of the handles over it."""
