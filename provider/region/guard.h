/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * guard.h - surviving the truncation or removal of a mapped region.
 *
 * The kernel answers an access beyond the end of a mapped file with SIGBUS, which would end the
 * process: any member could kill all other members with one truncate(). So while a region is
 * attached, a handler replaces the mapping with private zeros. Zeros mean that no member is
 * present, so the endpoints find themselves and all peers gone, and report errors in completions.
 *
 * A PCI device that is unplugged from a virtual machine does not always fault: its memory reads as
 * zeros, and writes are lost (QEMU's ivshmem, Linux 6.1). If a device is plugged in again at the
 * same address, the old mapping shows its memory. guard_is_gone() detects the removal.
 *
 * Any other SIGBUS goes to the handler that was installed before.
 */
#ifndef VICINAL_REGION_GUARD_H
#define VICINAL_REGION_GUARD_H

#include "region/region.h"

/*
 * Guard `region`, which must be mapped, until guard_forget(). Returns false if no memory is left.
 */
bool guard_watch(struct region *region);
/* Call before the region is unmapped. Does nothing for a region that is not guarded. */
void guard_forget(struct region *region);

/*
 * Was the device of the region unplugged without a fault? An unplugged BAR reads as zeros, but a
 * header never begins with zeros. If so, replaces the mapping with private zeros, as after a fault:
 * the same device may be plugged in again, with another region in it.
 */
bool guard_is_gone(struct region *region);

/* For fork.c: no other thread is in guard_watch() or guard_forget(). */
void guard_lock(void);
void guard_unlock(void);

#endif
