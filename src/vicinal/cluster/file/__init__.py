"""The cluster file: the user's description of a virtual cluster.

This package reads and checks the file. ../plan and ../resources create the cluster.
"""
