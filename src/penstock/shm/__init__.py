"""The workshop of channels in shared memory: one module per kind of channel."""
