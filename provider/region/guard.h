/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * guard.h - surviving that a region is cut short or taken away while it is mapped.
 *
 * The kernel answers an access beyond the end of a mapped file with SIGBUS, and that would
 * end the process: any member could kill all others with one truncate(). So while a region is attached, a
 * handler puts private zeros in its place. Zeros are no members, so the endpoints find themselves and all
 * their peers gone, and say so in completions.
 *
 * A PCI device that is unplugged from a virtual machine need not fault: its memory reads as zeros, and what
 * is written there is lost (QEMU's ivshmem, Linux 6.1). Plugged again at the same address, it shows through
 * the old mapping again. That is found by looking: guard_is_gone().
 *
 * Any other SIGBUS goes to the handler that was there before.
 */
#ifndef VICINAL_REGION_GUARD_H
#define VICINAL_REGION_GUARD_H

#include "region/region.h"

/* From here to guard_forget(), `region` is guarded. It must be mapped. False if no memory is left. */
bool guard_watch(struct region *region);
/* Before it is unmapped. A region that was not watched may be forgotten. */
void guard_forget(struct region *region);

/*
 * Was the device behind the region unplugged, though nothing faulted? An unplugged BAR reads as zeros, of
 * which a header has none at its beginning. Then private zeros are in its place from here on, as after a
 * fault: the same device may be plugged again, and another region behind it.
 */
bool guard_is_gone(struct region *region);

/* For fork.c: nobody is in one of the two. */
void guard_lock(void);
void guard_unlock(void);

#endif
