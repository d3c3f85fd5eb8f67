"""The workshop of channels that leave the machine."""
