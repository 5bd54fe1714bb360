"""What can be turned on a machine, a file for each kind of knob."""
