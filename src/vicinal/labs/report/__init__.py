"""What came out of a study, for people: a page, plots, Markdown and CSV, of summaries alone.

Nothing here reads samples or computes statistics: ../study/analysis makes the summary.
"""
