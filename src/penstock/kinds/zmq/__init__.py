"""`zmq+tcp:` and `zmq+ipc:` channels, through pyzmq."""
