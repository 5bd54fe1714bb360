"""From what a cluster is to be and what is there to what has to be done, and doing it.

Resources in general, the journal and plans are here. What a resource is made of is in ../resources.
"""
