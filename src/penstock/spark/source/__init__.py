"""The data source `penstock`: archives as rows, and rows as messages."""
