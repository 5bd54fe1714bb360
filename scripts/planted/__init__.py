"""`make check-planted`: plant known faults in a copy of the source, and show which suite finds
each.

`faults` reads tests/planted/*.toml. `sources` finds the function in which a fault is planted.
`suites` runs a suite and names the failed test. `copy` keeps the copy, and `__main__` uses all of
these.
"""
