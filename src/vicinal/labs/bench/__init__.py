"""Measuring: fair comparisons of paths on one machine, with what they are worth."""
