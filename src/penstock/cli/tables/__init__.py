"""The commands that write and query tables: pipeline, sql."""
