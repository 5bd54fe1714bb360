"""JSON schemas of what commands write."""
