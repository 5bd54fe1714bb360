"""Measuring, comparing and tuning: studies, the tuner, statistics and reports.

All that needs numpy, scipy, matplotlib or pyarrow is here. Labs start jobs by `vicinal.launch`, on
clusters by `vicinal.cluster`; no other part imports a module of theirs.
"""
