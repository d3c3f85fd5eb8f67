"""The commands that make tables and ask them: pipeline, sql."""
