"""Which NUMA nodes memory comes from that this process makes the kernel reserve.

That is set_mempolicy(2), which the C library has no function for. It is a wish: where a node has no
room left, others are used.
"""

import os
import platform
from collections.abc import Collection, Iterator
from contextlib import contextmanager

_CALLS = {"x86_64": 238, "aarch64": 237}
_DEFAULT, _PREFERRED, _INTERLEAVE = 0, 1, 3
_WORD = 64
_HIGHEST = 1023
"""Of kernels of today; a longer mask is refused by them."""


@contextmanager
def memory_from(nodes: Collection[int]) -> Iterator[str]:
    """Have memory come from one node, or from several in turn; none: where the kernel will.

    Gives why that cannot be, in words; empty where it can. It is so for this thread, for files in
    memory, too, until the `with` statement ends; children that are started within have it as well.
    """
    if not nodes:
        yield ""
        return
    trouble = _set(_INTERLEAVE if len(nodes) > 1 else _PREFERRED, nodes)
    try:
        yield trouble
    finally:
        _set(_DEFAULT, ())


def _set(policy: int, nodes: Collection[int]) -> str:
    import ctypes  # here, since it takes longer to load than most who make a region want to wait

    call = _CALLS.get(platform.machine())
    if call is None:
        return f"memory cannot be placed on {platform.machine()}"
    if any(not 0 <= node <= _HIGHEST for node in nodes):
        return f"there is no NUMA node {max(nodes)}"
    words = (ctypes.c_ulong * ((_HIGHEST + 1) // _WORD))()
    for node in nodes:
        words[node // _WORD] |= 1 << node % _WORD
    libc = ctypes.CDLL(None, use_errno=True)
    if not nodes:
        failed = libc.syscall(ctypes.c_long(call), ctypes.c_long(policy), None, ctypes.c_ulong(0))
    else:
        # The kernel takes one bit less than it is told.
        bits = ctypes.c_ulong(_HIGHEST + 2)
        failed = libc.syscall(ctypes.c_long(call), ctypes.c_long(policy), words, bits)
    if failed:
        shown = ", ".join(map(str, sorted(nodes)))
        return f"memory cannot be placed on NUMA node {shown}: {os.strerror(ctypes.get_errno())}"
    return ""
