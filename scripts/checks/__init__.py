"""Chooses and runs the suites of tests/suites.toml: `make check`, `make check-all` and CI.

suites.py reads tests/suites.toml. changes.py finds what commits changed, and which suites the
changes concern. rotation.py finds the long suites whose turn it is. plan.py combines both,
running.py runs a suite, and records.py keeps the results. Nothing here knows the contents of a
test.
"""
