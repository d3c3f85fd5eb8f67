"""The workshop of recordings: archives, recorders, replay. Gets its channels as arguments; imports no sibling."""
