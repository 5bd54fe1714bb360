/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * leave.h - leaving a region that is going to be taken away, while the process runs on.
 *
 * All that is left for a member to do in a region, once it reaches everybody else in another way, is to talk
 * to itself. So its own section is copied into memory of the process, which then takes the place of the
 * mapping: at the same addresses there is the same as before, but for the others, and nothing is shared any
 * more. The slot is free, the descriptors are closed, and the device behind them can be unplugged.
 *
 * Endpoints of one domain share a mapping. They leave it together, when the last of them is ready.
 */
#ifndef VICINAL_REGION_LEAVE_H
#define VICINAL_REGION_LEAVE_H

#include "region/member.h"

/*
 * Leave with all members of this mapping, if all are `ready`, and none of their application's memory lies in
 * it: then region->left. Nobody may be in a call with one of them. Returns whether it has been left.
 */
bool region_leave(struct region *region);

/* For member.c: who joins through a mapping, and who is not there any more. */
void leave_add(struct member *member);
void leave_remove(struct member *member);
/* Of member.c, for leave.c: no heartbeat from here on; and again. The latter returns whether there is one. */
void member_still(struct member *member);
bool member_start_again(struct member *member);

/* For fork.c: nobody joins or leaves. */
void leave_lock(void);
void leave_unlock(void);

#endif
