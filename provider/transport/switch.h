/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * switch.h - changing the way to a peer of our region while messages are under way: to the network, and
 * back. Each direction of a pair moves by itself, and its sender moves it:
 *
 *   sender                                          receiver
 *   ..., SWITCH      ────────── the old way ───────▶  all before it was taken; nothing is kept in the
 *                                                   sender's chunks any more
 *                  ◀───────── taken ─────────────   by the region: the credit, with SWITCH counted in;
 *                                                   over the network: a frame of its own, SWITCHED
 *   ...            ────────── the new way ───────▶
 *
 * So there is one order of slots over both ways, and nothing comes by the new one before the receiver
 * is ready for it. "Taken" never waits for room among slots, so both directions may move at once. In
 * between there is no room in the ring: callers try again, as with any that is full.
 *
 * What belongs to a message and not to a way need not end before: pieces, answers and acknowledgements
 * go on by the new way, and a read over the network goes on while the core is open. Only copies from
 * one end's memory to the other's are not begun any more (peer->mapped), and the region is left when
 * those under way have ended.
 *
 * The way to the network must be seen to work before it is taken: a ping is answered.
 */
#ifndef VICINAL_TRANSPORT_SWITCH_H
#define VICINAL_TRANSPORT_SWITCH_H

#include "transport/transport.h"

/* Now and then: begin to move the peers that are to be reached another way. */
void transport_begin_switches(struct transport *transport);
/* At each poll while transport->switches is not 0. */
void transport_continue_switches(struct transport *transport);
/* `peer` failed: it does not move any more. */
void transport_end_switch(struct transport *transport, struct peer *peer);
/* Its last slot through the region, or over the network, was taken out. */
void transport_take_switch(struct transport *transport, struct peer *peer);
/* Say for people and the manager how what we send to `peer` goes. */
void transport_publish_route(const struct transport *transport, const struct peer *peer);

#endif
