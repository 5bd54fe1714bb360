"""Vicinal's data source for cloud-init; etc/cloud/cloud.cfg.d/70-vicinal.cfg names this package."""
