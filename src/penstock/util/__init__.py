"""Units, clocks, files and storage: what every other folder may use. Knows nothing of channels."""
