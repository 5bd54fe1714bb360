"""The commands `vicinal study ...`: run, list, compare, show.

This folder holds options and printed text. `vicinal.labs.study` knows studies, runs them and reads
their results; `vicinal.labs.report` draws results. Both know no command.
"""
