/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * switch.h - switching the transport to a peer of our region while messages are under way: to the network,
 * and back. Each direction of a pair switches by itself, and its sender switches it:
 *
 *   sender                                            receiver
 *   ..., SWITCH    ──────── the old transport ──────▶  takes all slots before SWITCH, and keeps nothing in
 *                                                     the sender's chunks
 *                  ◀──────── taken ─────────────────   in the region: the credit, with SWITCH counted in;
 *                                                     over the network: a frame of its own, SWITCHED
 *   ...            ──────── the new transport ──────▶
 *
 * So the slots have one order over both transports, and no slot comes by the new transport before the
 * receiver is ready for it. "Taken" never waits for room among slots, so both directions may switch at the
 * same time. Until it comes, the ring has no room: callers try again, as with any full ring.
 *
 * What belongs to a message need not end first: pieces, answers and acknowledgements continue by the new
 * transport, and a read over the network continues while the core is open. Only copies from one end's
 * memory to the other's do not begin any more (peer->mapped). A direction leaves the region when the copies
 * under way have ended.
 *
 * Before a direction switches to the network, a ping must be answered there.
 */
#ifndef VICINAL_TRANSPORT_SWITCH_H
#define VICINAL_TRANSPORT_SWITCH_H

#include "transport/transport.h"

/* From time to time: begin to switch the peers that are to be reached by another transport. */
void transport_begin_switches(struct transport *transport);
/* At each poll while transport->switches is not 0. */
void transport_continue_switches(struct transport *transport);
/* `peer` failed: its switch ends. */
void transport_end_switch(struct transport *transport, struct peer *peer);
/* Its last slot through the region, or over the network, was taken out. */
void transport_take_switch(struct transport *transport, struct peer *peer);
/* Publish the route to `peer`, for people and the manager. */
void transport_publish_route(const struct transport *transport, const struct peer *peer);

#endif
