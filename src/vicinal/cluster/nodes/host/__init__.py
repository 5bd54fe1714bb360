"""A node that is this host itself: the baseline, with nothing between a rank and the hardware.

Facts and checks of the host are in `vicinal.host`.
"""
