"""Guests that boot without knowing who they are, and are started from a saved state of such a one.

A guest's user space comes up, stops before anything that would tell it from others, and waits to be
told (guest_waits.sh). Saved there it is a snapshot, for all guests of the same make; whoever is
started from it gets a name, keys, random numbers, cards and a region of its own.
"""
