"""Studies: what virtualization costs, measured and shown."""
