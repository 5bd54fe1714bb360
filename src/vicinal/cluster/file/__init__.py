"""The cluster file: what a virtual cluster is to be, as people write it."""
