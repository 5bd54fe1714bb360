"""What cloud-init has of Vicinal: etc/cloud/cloud.cfg.d/70-vicinal.cfg names this package."""
