"""The files of tables as rows, and rows as such files: data sources and a sink that only this package uses."""
