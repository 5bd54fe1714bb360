"""The appliance: a bootable disk with Debian, an MPI library and Vicinal, for any cloud."""
