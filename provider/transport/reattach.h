/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * reattach.h - coming back to a region, after we have left one: to another, on the host that our machine went
 * to, or to the same.
 *
 * About once a second the place where we found our region is looked at. When there is one we take a slot in
 * it, as a *guest*: our address names the region that we joined first, and our nonce in it, for as long as we
 * live, and in this section there is another nonce. So nobody meets us here by our address, or takes us for
 * two. All who know us reach us over the network, and are asked there:
 *
 *   one, which came back                     other
 *   REGION 0: I am in this region  ───────▶   if it is there too, and the slot has that nonce
 *              ◀───────────────────────────   REGION 1: so am I
 *   REGION 2: I heard that  ──────────────▶   both may move from here on
 *
 * Who still detaches from the other (detach.h) does not answer, and asks itself when it has detached. Who was
 * asked and may not meet the other now, as the manager wants it, asks when it may.
 *
 * Then each moves what it sends into the region, as in switch.h. A peer that is met so keeps its number,
 * which is not that of its slot; and so its slot's number stays with whom it was given to, if that one lives
 * on elsewhere.
 */
#ifndef VICINAL_TRANSPORT_REATTACH_H
#define VICINAL_TRANSPORT_REATTACH_H

#include "transport/transport.h"

/* Now and then: look for a region, and ask who is in it. */
void transport_check_reattaching(struct transport *transport, uint64_t now);
/*
 * `peer`, which we reach over the network, says that it is in the attachment's region, with this slot, epoch
 * and nonce: it is from now on, if that is true and the manager wants nothing else. Returns whether it is.
 */
bool transport_reattach_peer(struct attachment *attachment, struct peer *peer, uint32_t slot, uint32_t epoch,
			     uint64_t nonce);
/* The member of the attachment's region whose slot's number is another's. NULL if it has no place in the
 * network.
 */
struct peer *transport_meet_alias(struct attachment *attachment, uint32_t slot, uint32_t epoch,
				  uint64_t nonce);

#endif
