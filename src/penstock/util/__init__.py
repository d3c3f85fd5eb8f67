"""Units, clocks, files and storage: for use by every other folder. Knows nothing of channels."""
