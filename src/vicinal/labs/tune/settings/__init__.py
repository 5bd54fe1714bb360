"""Setting knobs so that a machine is never left worse than it was found."""
