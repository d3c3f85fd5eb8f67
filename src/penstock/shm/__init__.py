"""The workshop of channels in shared memory: files, and handles on logs."""
