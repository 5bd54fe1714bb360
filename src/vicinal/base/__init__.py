"""Code that every part of the package uses: errors, files, locks, words of command lines.

This folder holds errors and their wording, careful reading and writing of files, locks, journals,
signals, processes that outlive a command, dataclasses as JSON, and the common parts of command
lines. Modules here know nothing about regions, MPI, hosts, clusters or measurements. A module that
imports another part belongs into that part.
"""
