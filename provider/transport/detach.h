/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * detach.h - leaving a region for good: ROUTE_LEAVE, when the machine that we run on goes to another host.
 *
 * First each pair moves to the network, as in switch.h. That both ends are there is not enough, for what they
 * know of each other they still read in the region. So they part, by words that go over the network alone:
 *
 *   one                                              other
 *   DETACH   ──────────── the network ──────────────▶  nothing of its comes through the region any more
 *          ◀──────────────────────────────────────   DETACH, which says that it heard that
 *   DETACH, which says the same  ───────────────────▶
 *
 * Who has said DETACH and heard it asks the region for nothing about the other: its claim is our own word,
 * and whether it lives the network shows (network_keepalive.c). A peer keeps its number and place in
 * matching.
 *
 * A direction that nobody ever sent in has no last slot that could move it. It belongs to the network from
 * the DETACH on, and what is sent there waits until the other is known to expect it.
 *
 * Who is to leave meets all members first: none of them may offer it a ring afterwards. None does of those
 * that meet it in another region that both share. When it has detached from all, and each said that it heard
 * so, it leaves: region/leave.h.
 */
#ifndef VICINAL_TRANSPORT_DETACH_H
#define VICINAL_TRANSPORT_DETACH_H

#include "transport/transport.h"

/* Now and then: meet those that detach from us, or that we have to detach from. */
void transport_meet_leavers(struct transport *transport);
/* The same: go on detaching from `peer`, which is in one of our regions, if one of us is to leave it. */
void transport_detach_peer(struct transport *transport, struct peer *peer);
/* The same, at last: leave the regions in which nobody is left for us. */
void transport_leave_regions(struct transport *transport);
/* Has it begun to detach from us, or we from it? Then it is over the network that it is looked after. */
bool transport_is_detaching(const struct peer *peer);
/*
 * `peer`, which came back to one of our regions, is not there any more. If it left before it heard that we
 * met it there, neither sends through the region: we forget the place, and it is reached over the network as
 * before. False if it had heard.
 */
bool transport_undo_reattach(struct peer *peer);
/*
 * The region says of `peer`, which we never talked to, that it left for the network: it is reached there.
 * False if that is not possible.
 */
bool transport_detach_at_once(struct transport *transport, struct peer *peer);

#endif
