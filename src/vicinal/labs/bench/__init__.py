"""Measuring: fair comparisons of paths on one machine, with what they are worth, and the demo.

`bars.json` has what a measurement must reach. Studies, which have files and reports of their own,
are in ../study.
"""
