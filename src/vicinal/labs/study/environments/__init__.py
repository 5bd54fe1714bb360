"""Environments of a study: creates their clusters and launches programs in them."""
