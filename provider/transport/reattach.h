/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * reattach.h - coming back to a region after leaving one: to another region, on the host to which
 * our virtual machine migrated, or to the same region.
 *
 * About once a second we search for a region in the way in which we found ours. If there is one, we
 * join it as an alias: our address always names the region that we joined first, and our nonce
 * there, and the new section has another nonce. So no peer finds us in this region by our address,
 * or takes us for two members. All peers that know us reach us over the network, and are asked
 * there:
 *
 *   one, which came back                    other
 *   REGION 0: I am in this region  ──────▶   if it is in this region, and our slot has that nonce
 *              ◀──────────────────────────   REGION 1: so am I
 *   REGION 2: acknowledgement  ──────────▶   both may switch from here on
 *
 * A member that still detaches from the other (detach.h) does not answer, and asks when it has
 * detached. A member that was asked while the manager's request forbids the region asks when the
 * request permits it.
 *
 * Then each end switches what it sends to the region, as in switch.h. Such a peer keeps its number,
 * which is not the number of its slot. The slot's own number stays with the peer that had it, if
 * that peer lives on elsewhere.
 */
#ifndef VICINAL_TRANSPORT_REATTACH_H
#define VICINAL_TRANSPORT_REATTACH_H

#include "transport/transport.h"

/* Call from time to time: search for a region, and ask which peers are in it. */
void transport_check_reattaching(struct transport *transport, uint64_t now);
/*
 * `peer`, which we reach over the network, says that it is in the attachment's region, with this
 * slot, epoch and nonce. Bind it to that slot if that is true and the manager permits it. Returns
 * whether the peer is bound.
 */
bool transport_reattach_peer(struct attachment *attachment, struct peer *peer, uint32_t slot, uint32_t epoch,
			     uint64_t nonce);
/*
 * The peer for a member of the attachment's region whose slot's number belongs to another peer.
 * NULL if no network reaches the member.
 */
struct peer *transport_meet_alias(struct attachment *attachment, uint32_t slot, uint32_t epoch,
				  uint64_t nonce);

#endif
