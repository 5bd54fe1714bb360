"""What measured values say, and with which confidence.

Functions take arrays and return frozen dataclasses with `to_dict`. Nothing here reads a file or
knows studies. Values keep their unit. The unit of replication is the trial, a fresh start of a
program. If two sides are compared, trial i of both ran in block i, one soon after the other.
docs/explanation/statistics.md says which method serves which purpose, and names its source.
"""
