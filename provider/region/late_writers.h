/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * late_writers.h - members that may still be writing into our heap for one who had our slot before.
 *
 * A sender of a single copy writes into the receiver's heap (proto/single_copy.h), and so does who
 * reaches registered memory by itself (proto/direct.h). If it is taken off its CPU in the middle,
 * the receiver may die meanwhile, and a successor take the slot; what the sender then goes on to
 * write must not be the successor's memory. So:
 *
 * - The sender says in its line into whose section it writes (`peer`), claims, or says so in its
 *   section's header (`reaching`), then there is a full fence, then it looks whether that member
 *   still has its slot, then it writes.
 * - The successor has claimed the slot; then there is a full fence, then it looks for such claims,
 *   and hands nothing of its heap out until there is none.
 *
 * One of the two sees the other, always. So each write that was begun for a predecessor ends
 * before our application has memory where it goes. Nobody waits for it: meanwhile allocations from
 * the heap fail, and messages, which do not need it, go on.
 *
 * This takes claims for what they say. A member that claims falsely keeps us from our heap while it
 * lives, which costs speed. One that does not claim writes into it in any case: it may write all of
 * the region.
 *
 * What this does not cover: a member in another kernel that was paused in the middle of a write for
 * longer than the timeout, so that its own slot was taken too and its lines were cleared. When it
 * goes on, it writes the rest of that part, at most 64 KiB, before it looks at its claim word
 * (transport_holds_slot()).
 */
#ifndef VICINAL_REGION_LATE_WRITERS_H
#define VICINAL_REGION_LATE_WRITERS_H

#include "region/member.h"

/* Once this was false it stays false. Takes a look at each transfer line of the region. */
bool late_writers_may_be(const struct member *self);

#endif
