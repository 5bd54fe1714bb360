"""Starting MPI jobs whose ranks reach each other through a region."""
