/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * reattach.h - coming back to a region after leaving one: to another, on the host that our virtual machine
 * went to, or to the same.
 *
 * About once a second we look for a region where we found ours. If there is one, we take a slot in it as an
 * alias: our address names the region that we joined first, and our nonce in it, as long as we live, and this
 * section has another nonce. So no peer meets us here by our address, or takes us for two members. All peers
 * that know us reach us over the network, and are asked there:
 *
 *   one, which came back                    other
 *   REGION 0: I am in this region  ──────▶   if it is in this region, and our slot has that nonce
 *              ◀──────────────────────────   REGION 1: so am I
 *   REGION 2: I heard that  ─────────────▶   both may switch from here on
 *
 * A member that still detaches from the other (detach.h) does not answer, and asks itself when it has
 * detached. A member that was asked, and may not meet the other now because of the manager's request, asks
 * when it may.
 *
 * Then each switches what it sends to the region, as in switch.h. A peer that is met so keeps its number,
 * which is not the number of its slot. The slot's own number stays with the peer that had it, if that peer
 * lives on elsewhere.
 */
#ifndef VICINAL_TRANSPORT_REATTACH_H
#define VICINAL_TRANSPORT_REATTACH_H

#include "transport/transport.h"

/* From time to time: look for a region, and ask which peers are in it. */
void transport_check_reattaching(struct transport *transport, uint64_t now);
/*
 * `peer`, which we reach over the network, says that it is in the attachment's region, with this slot, epoch
 * and nonce: it is from now on, if that is true and the manager wants nothing else. Returns whether it is.
 */
bool transport_reattach_peer(struct attachment *attachment, struct peer *peer, uint32_t slot, uint32_t epoch,
			     uint64_t nonce);
/* The member of the attachment's region whose slot's number is another peer's. NULL if no network reaches it.
 */
struct peer *transport_meet_alias(struct attachment *attachment, uint32_t slot, uint32_t epoch,
				  uint64_t nonce);

#endif
