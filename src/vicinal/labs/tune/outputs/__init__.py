"""Settings as scripts for other tools, and the results of searches for the report."""
