"""What guests boot: a kernel, an archive with their file system, and the appliance for clouds.

The shell scripts and udev rules here run in the guest. An image is built from Debian packages,
which are unpacked and never installed on this host. ../image_commands.py lists a user's images.
"""
