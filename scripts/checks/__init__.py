"""Chooses and runs the suites of tests/suites.toml: `make check`, `make check-all` and CI.

suites.py reads the map, changes.py says what commits changed and which suites that concerns,
rotation.py which long suites have their turn, plan.py puts these together, running.py runs a suite,
records.py keeps what came of it. Nothing here knows what a test is about.
"""
