"""Counters of channels, watched from outside: rates for the command, metrics for Prometheus."""
