"""What came out of a study, for people: a page, plots, Markdown and CSV, of summaries alone."""
