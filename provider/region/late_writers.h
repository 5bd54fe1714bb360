/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * late_writers.h - members that may still be writing into this member's heap for a former occupant
 * of the slot.
 *
 * The sender of a single copy writes into the receiver's heap (proto/single_copy.h), and so does
 * the initiator of a direct access to registered memory (proto/direct.h). Both are senders below.
 * If a sender is descheduled in the middle, the receiver may die meanwhile, and a successor may
 * take the slot. The rest of the sender's write must not hit the successor's memory. So:
 *
 * - The sender announces in its transfer line into whose section it writes (`peer`) and claims, or
 *   announces the member in its section's header (`reaching`). After a full fence, it checks
 *   whether that member still has its slot. Then it writes.
 * - The successor claims the slot. After a full fence, it looks for such announcements, and
 *   allocates nothing from its heap until there are none.
 *
 * At least one of the two always sees the other. So each write that was begun for a predecessor
 * ends before the application has memory there. Nothing waits for that end: allocations from the
 * heap fail meanwhile, and messages go on, because they do not need the heap.
 *
 * The check believes announcements. A member with a false announcement keeps this member from its
 * heap while it lives, which costs only speed. A member that does not announce can write there in
 * any case, because it may write all of the region.
 *
 * One case is not covered: a member in another kernel was paused in the middle of a write for
 * longer than the timeout, so that its own slot was taken too and its lines were cleared. When it
 * runs again, it writes the rest of that part, at most 64 KiB, before it checks its claim word
 * (transport_holds_slot()).
 */
#ifndef VICINAL_REGION_LATE_WRITERS_H
#define VICINAL_REGION_LATE_WRITERS_H

#include "region/member.h"

/* Once false, the result stays false. Reads each transfer line of the region. */
bool late_writers_may_be(const struct member *self);

#endif
