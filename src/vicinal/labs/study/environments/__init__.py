"""Environments of a study: from their description to something that programs are launched in."""
