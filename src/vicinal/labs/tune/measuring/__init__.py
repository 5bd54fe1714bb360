"""Measuring settings for a search: knobs are turned, and the studies' workloads are launched."""
