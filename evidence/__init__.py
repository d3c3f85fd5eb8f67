"""The suites in which Penstock's structures are judged. `python -m evidence --help`; docs/design/evidence.md explains."""
