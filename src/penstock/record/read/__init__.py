"""Reading recordings: plans, scans, replay, rows."""
