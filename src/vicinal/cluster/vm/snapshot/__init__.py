"""Guests that boot without an identity, and further guests that start from their saved state.

A guest's user space starts, stops before anything that would distinguish it from other guests, and
waits for its identity (guest_waits.sh). Saved at this point it is a snapshot for all guests of the
same hardware. A guest that starts from the snapshot gets a name, keys, random numbers, cards and a
region of its own.
"""
