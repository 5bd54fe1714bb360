"""Plans: the steps from the present state of a cluster to the state that its file describes.

This package has the protocol of resources, the journal, plans and their execution. The kinds of
resources are in ../resources.
"""
