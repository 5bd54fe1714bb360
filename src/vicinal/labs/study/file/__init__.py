"""The study file: its model, its schema, the shipped studies, and adaptation to a machine."""
