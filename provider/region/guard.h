/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * guard.h - surviving that a region's file is cut short while it is mapped.
 *
 * The kernel answers an access beyond the end of a mapped file with SIGBUS, and that would
 * end the process: any member could kill all others with one truncate(). So while a region
 * on a file is attached, a handler puts private zeros in its place. Zeros are no members,
 * so the endpoints find themselves and all their peers gone, and say so in completions.
 *
 * Any other SIGBUS goes to the handler that was there before.
 */
#ifndef VICINAL_REGION_GUARD_H
#define VICINAL_REGION_GUARD_H

#include "region/region.h"

/* From here to guard_forget(), `region` is guarded. It must be mapped. */
void guard_watch(struct region *region);
/* Before it is unmapped. A region that was not watched may be forgotten. */
void guard_forget(struct region *region);

/* For fork.c: nobody is in one of the two. */
void guard_lock(void);
void guard_unlock(void);

#endif
