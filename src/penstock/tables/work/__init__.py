"""The tasks of a pipeline, who does them, and the rows that they write."""
