"""What measured values say, and how sure one can be of it.

Arrays in, frozen dataclasses with `to_dict` out; nothing here reads a file or knows what a study
is. Values have whatever unit they came in. The unit of replication is the trial, a fresh start of a
program: wherever two sides are compared, trial i of both ran in block i, one soon after the other.
docs/explanation/statistics.md says which method is used for what, and where it comes from.
"""
