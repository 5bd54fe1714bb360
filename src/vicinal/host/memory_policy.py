"""The NUMA nodes from which the kernel takes memory for this process.

The module calls set_mempolicy(2), for which the C library has no function. The policy is a
preference: if a node has no free memory, the kernel uses other nodes.
"""

import os
import platform
from collections.abc import Collection, Iterator
from contextlib import contextmanager

_CALLS = {"x86_64": 238, "aarch64": 237}
_DEFAULT, _PREFERRED, _INTERLEAVE = 0, 1, 3
_WORD = 64
_HIGHEST = 1023
"""Highest node number of current kernels, which refuse a longer mask."""


@contextmanager
def memory_from(nodes: Collection[int]) -> Iterator[str]:
    """Take memory from one node, or from several nodes in turn; without nodes, the kernel decides.

    Yields an error message; empty if the policy is set. The policy holds for this thread, files in
    memory included, until the `with` statement ends. Children that start within the block inherit
    the policy.
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
    import ctypes  # imported here, because creating most regions does not need its load time

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
        # The kernel uses one bit less than the given number.
        bits = ctypes.c_ulong(_HIGHEST + 2)
        failed = libc.syscall(ctypes.c_long(call), ctypes.c_long(policy), words, bits)
    if failed:
        shown = ", ".join(map(str, sorted(nodes)))
        return f"memory cannot be placed on NUMA node {shown}: {os.strerror(ctypes.get_errno())}"
    return ""
