"""Where the keeper of a job's virtual machines leaves what tasks get into them by."""

GUESTS = "guests"
"""Directory of keys and sockets, below the keeper's."""
TASKS = "tasks.json"
"""File with what else tasks have to know: variables, and what the guests have of this host's."""
