"""Setting knobs, and restoring them after any end of a command."""
