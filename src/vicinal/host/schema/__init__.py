"""JSON schemas of what commands about the host write. Checking is in `vicinal.host.doctor`."""
