/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * leave.h - leaves a region that is about to be removed, while the process runs on.
 *
 * A member that reaches all other members over the network uses the region only to send to itself.
 * So its section is copied into memory of the process, which replaces the mapping: the same
 * addresses have the same contents, but without the other members, and no longer shared. The slot
 * is freed and the descriptors are closed, so the device can be unplugged.
 *
 * Endpoints of one domain share a mapping. They leave together, when the last of them is ready.
 */
#ifndef VICINAL_REGION_LEAVE_H
#define VICINAL_REGION_LEAVE_H

#include "region/member.h"

/*
 * Leave with all members of this mapping, if all are `ready` and no memory of their application
 * lies in the region. Then sets region->left. No other thread may be in a call with one of the
 * members. Returns whether the region has been left.
 */
bool region_leave(struct region *region);

/* For member.c: a member joins through a mapping, or is gone. */
void leave_add(struct member *member);
void leave_remove(struct member *member);
/*
 * Defined in member.c for leave.c: stop the heartbeat, and start it again. The latter returns
 * whether the heartbeat runs.
 */
void member_still(struct member *member);
bool member_start_again(struct member *member);

/* For fork.c: no thread joins or leaves. */
void leave_lock(void);
void leave_unlock(void);

#endif
