"""MPI libraries and jobs of theirs: programs, variables, placement, and how messages went.

Here is what a job needs of its MPI library and of the provider, wherever its ranks run. How a job
is started is in `vicinal.launch`; nothing here knows nodes.
"""
