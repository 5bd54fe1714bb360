"""Results: a folder for each, which keeps all that was measured, and where it comes from."""
