"""Other hosts: naming them, reaching them by ssh or by Slurm, and starting agents on them.

What an agent does is its own module's: share_agent.py of clusters, host_agent.py of jobs.
"""
