"""The shared region, as seen from Python: create it, look into it, check it."""
