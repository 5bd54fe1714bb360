"""Settings as files that others use: scripts, a profile of TuneD, variables for MPI jobs."""
