/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * detach.h - leaving a region for good: ROUTE_LEAVE, when our virtual machine goes to another host.
 *
 * First each pair switches to the network, as in switch.h. That is not enough, because each end still reads
 * in the region what it knows of the other. So the two detach, by frames that go over the network only:
 *
 *   one                                                other
 *   DETACH    ─────────────── the network ───────────▶  no slot of `one` comes through the region any more
 *             ◀──────────────────────────────────────  DETACH, which says that the first was heard
 *   DETACH, which says the same  ────────────────────▶
 *
 * An endpoint that has sent DETACH and received DETACH reads nothing about the other in the region: it keeps
 * the other's claim word itself, and the network shows whether the other lives (network_keepalive.c). A peer
 * keeps its number and its place in matching.
 *
 * A direction that never had a ring has no last slot that could switch it. It belongs to the network from
 * DETACH on, and its messages wait until the other is known to expect them.
 *
 * A member that is to leave meets all members first, so that none of them offers it a ring afterwards. A
 * member that meets it in another region that both share offers none. When it has detached from all, and
 * each has said that it heard so, it leaves: region/leave.h.
 */
#ifndef VICINAL_TRANSPORT_DETACH_H
#define VICINAL_TRANSPORT_DETACH_H

#include "transport/transport.h"

/* From time to time: meet the members that detach from us, or that we have to detach from. */
void transport_meet_leavers(struct transport *transport);
/* The same: continue to detach from `peer`, which is in one of our regions, if one of us is to leave it. */
void transport_detach_peer(struct transport *transport, struct peer *peer);
/* The same, at last: leave the regions in which nobody is left for us. */
void transport_leave_regions(struct transport *transport);
/* Has it begun to detach from us, or we from it? Then the network shows whether it lives. */
bool transport_is_detaching(const struct peer *peer);
/*
 * `peer`, which came back to one of our regions, is not there any more. If it left before it heard that we
 * met it there, neither sends through the region: we forget its slot, and it is reached over the network as
 * before. False if it had heard.
 */
bool transport_undo_reattach(struct peer *peer);
/*
 * The region says of `peer`, which we never talked to, that it left for the network: it is reached there.
 * False if that is not possible.
 */
bool transport_detach_at_once(struct transport *transport, struct peer *peer);

#endif
