"""The studies that come with Vicinal, as data: NAME.yaml, of figures and tables of papers.

There is no code here. `vicinal.labs.study.file.shipped` finds and reads them.
"""
