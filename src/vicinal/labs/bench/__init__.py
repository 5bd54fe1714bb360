"""`vicinal bench` and `vicinal demo`: transports compared with each other and with the machine.

`bars.json` has what a measurement must reach; `bars` reads it, and `sides` has what bars compare.
`jobs` runs one trial, `running` all trials of all bars, and `compare` decides a row.
Studies, which have files, result folders and reports of their own, are in ../study. Bars and
studies share the programs, the head of results (../provenance.py) and the statistics.
"""
