"""Settings as scripts that others use, and what a search found, as the report shows it."""
