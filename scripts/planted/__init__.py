"""`make check-planted`: plant known faults in a copy of the source; show which suite finds each.

`faults` reads tests/planted/*.toml. `sources` finds the function that a fault is planted in.
`suites` runs a suite and names the test that failed. `copy` keeps the copy. `__main__` joins them.
"""
