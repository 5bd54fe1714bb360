"""The report of a study: a page, plots, Markdown and CSV, made from summaries.

Nothing here reads samples or computes statistics. ../study/analysis makes the summary.
"""
