"""The knobs of a host and of jobs, a file for each kind of knob."""
