"""What guests boot: a kernel and an archive with their file system, and the appliance for clouds.

Shell scripts and udev rules here run in the guest. An image is built of Debian packages, which are
unpacked and never installed here. Which images are kept for a user is in ../image_commands.py.
"""
