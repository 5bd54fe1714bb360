"""MPI libraries, and jobs of theirs: programs, variables, placement, and the way of messages."""
