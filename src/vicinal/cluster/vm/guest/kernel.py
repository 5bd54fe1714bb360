"""What every guest's kernel is told that is started without a boot loader."""

KERNEL_WORDS = ("console=ttyS0", "quiet", "panic=-1", "net.ifnames=0", "no_timer_check")
"""The last, since a busy host is late with the ticks that a kernel counts at first, and panics."""
