"""The commands on channels: ls, rm, pub, sub, top."""
