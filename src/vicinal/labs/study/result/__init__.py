"""Results: a folder for each, with all that was measured and where it comes from."""
