"""Running a study: its blocks in random order, trial by trial, kept as they end."""
