"""Runs a study: blocks in random order, trial by trial, each stored as it ends."""
