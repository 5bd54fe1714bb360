"""From what a cluster is to be and what is there to what has to be done, and doing it."""
