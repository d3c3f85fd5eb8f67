"""The workshop of recordings: archives, recorders, replay. Gets its channels handed in; imports no sibling."""
