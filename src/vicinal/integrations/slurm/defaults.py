"""What is so with Slurm's plugin where an administrator says nothing else."""

from pathlib import Path

DEFAULT_REGIONS = Path("/run/vicinal-slurm")
"""Outside of /dev/shm and /tmp, which job_container/tmpfs gives to each job anew."""
DEFAULT_MAX_SIZE = "4G"
"""Of a job's region."""
GRES = "vf"
"""The name by which users ask for SR-IOV functions."""
NETWORK_PORT = 330
"""UDP port of jobs' networks over several hosts. No service has it, and only root can: what belongs
to a job that has ended on a host reaches no user's process there."""
