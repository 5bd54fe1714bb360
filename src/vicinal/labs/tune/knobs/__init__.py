"""The knobs of a machine and of jobs, a file for each kind of knob."""
