"""The tuner: what can be set on a machine for messages, set safely, and the best of it found."""
