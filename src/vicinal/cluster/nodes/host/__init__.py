"""A node that is this host itself: the baseline, without anything between ranks and hardware.

`vicinal.host` has facts and checks of the host.
"""
