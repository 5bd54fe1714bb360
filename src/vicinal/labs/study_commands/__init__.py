"""The commands `vicinal study ...`: run, list, compare, and how a study is shown before it runs.

Here are options and what is printed. What a study is, how it runs and what its results say is in
`vicinal.labs.study`, how results are drawn in `vicinal.labs.report`: both know no command.
"""
