"""Counters for other programs: metrics for Prometheus."""
