"""Measures settings for a search: turns knobs, and launches workloads of studies."""
