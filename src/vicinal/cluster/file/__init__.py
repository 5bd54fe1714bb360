"""The cluster file: what a virtual cluster is to be, as people write it.

Reading and checking it is here. How a cluster is made is in ../plan and ../resources.
"""
