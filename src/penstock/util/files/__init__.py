"""Files that survive a crash, users' files, secrets, and object storages behind one name for each place."""
