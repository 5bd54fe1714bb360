"""What every part may use, and what uses no part: errors, files, locks, commands' words.

Here are errors and how they are said, files that are read and written with care, locks, journals,
signals, processes that outlive a command, dataclasses as JSON, and what command lines have in
common. Here is nothing that knows of regions, MPI, hosts, clusters or measurements: a module that
imports another part belongs to that part.
"""
