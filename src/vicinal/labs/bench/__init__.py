"""`vicinal bench` and `vicinal demo`: transports compared with each other and with the machine.

`bars.json` has the figures that a measurement must reach. `bars` reads the file, and `sides` has
the sides that bars compare. `jobs` runs one trial, `running` runs all trials of all bars, and
`compare` decides a row. Studies are in ../study, with files, result folders and reports of their
own. Bars and studies share the programs, the head of results (../provenance.py) and the statistics.
"""
