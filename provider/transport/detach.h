/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * detach.h - leaving a region for good: ROUTE_LEAVE, when our virtual machine migrates to another
 * host.
 *
 * First each pair switches to the network, as in switch.h. That is not enough, because each end
 * still reads words of the other in the region. So the two ends detach, by frames that go only over
 * the network:
 *
 *   one                                                other
 *   DETACH    ─────────────── the network ───────────▶  no slot of `one` comes through the region any more
 *             ◀──────────────────────────────────────  DETACH, which acknowledges the first
 *   DETACH, which acknowledges the other's  ─────────▶
 *
 * An endpoint that has sent DETACH and received DETACH reads nothing about the other in the region.
 * It keeps the other's claim word in private memory, and the network shows whether the other lives
 * (network_keepalive.c). A peer keeps its number and its place in matching.
 *
 * A direction that never had a ring has no last slot that could switch it. It uses the network from
 * DETACH on, and its messages wait until the other end is known to expect them.
 *
 * A member that is to leave first makes all members its peers, so that none of them offers it a
 * ring afterwards. A member that is its peer through another region that both share offers none.
 * When it has detached from all peers, and each has acknowledged that, it leaves: region/leave.h.
 */
#ifndef VICINAL_TRANSPORT_DETACH_H
#define VICINAL_TRANSPORT_DETACH_H

#include "transport/transport.h"

/*
 * From time to time: make the members that detach from us, or from which we have to detach, our
 * peers.
 */
void transport_meet_leavers(struct transport *transport);
/*
 * From time to time: continue to detach from `peer`, which is in one of our regions, if one of the
 * two is to leave it.
 */
void transport_detach_peer(struct transport *transport, struct peer *peer);
/*
 * From time to time, after the functions above: leave the regions in which we have no peers left.
 */
void transport_leave_regions(struct transport *transport);
/* Has either end begun to detach? Then the network shows whether the peer lives. */
bool transport_is_detaching(const struct peer *peer);
/*
 * `peer`, which came back to one of our regions, is gone from there. If it left before it received
 * our acknowledgement, neither end sends through the region: forget its slot, and reach it over the
 * network as before. Returns false if it had received the acknowledgement.
 */
bool transport_undo_reattach(struct peer *peer);
/*
 * According to the region, `peer` left for the network before we exchanged a message: reach it
 * there. Returns false if that is not possible.
 */
bool transport_detach_at_once(struct transport *transport, struct peer *peer);

#endif
