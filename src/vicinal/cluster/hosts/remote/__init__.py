"""Other hosts: their names, their connections by ssh or Slurm, and starting agents on them.

The agents are other modules: host_part_agent.py for clusters, host_agent.py for jobs.
"""
