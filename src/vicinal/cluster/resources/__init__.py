"""The kinds of resources of a cluster, one kind a module: creation, observation and removal.

../plan has their order and their journal. ../nodes and ../vm have what nodes and virtual machines
need to run.
"""
