/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * switch.h - switching the transport to a peer of our region while messages are in progress: to the
 * network, and back. Each direction of a pair switches separately, and its sender switches it:
 *
 *   sender                                            receiver
 *   ..., SWITCH    ──────── the old transport ──────▶  takes all slots before SWITCH, and keeps nothing in
 *                                                     the sender's chunks
 *                  ◀──────── taken ─────────────────   in the region: the credit, which includes SWITCH;
 *                                                     over the network: a separate frame, SWITCHED
 *   ...            ──────── the new transport ──────▶
 *
 * So the slots have one order over both transports, and no slot comes by the new transport before
 * the receiver is ready for it. "Taken" never waits for free slots, so both directions may switch
 * at the same time. Until it comes, the ring has no room, and callers try again, as with any full
 * ring.
 *
 * Operations in progress need not end first: their pieces, answers and acknowledgements continue by
 * the new transport, and a read over the network continues while the core is open. Only copies
 * between the memories of the two ends no longer begin (peer->mapped). A direction leaves the
 * region when the copies in progress have ended.
 *
 * Before a direction switches to the network, a ping must be answered there.
 */
#ifndef VICINAL_TRANSPORT_SWITCH_H
#define VICINAL_TRANSPORT_SWITCH_H

#include "transport/transport.h"

/*
 * Call from time to time: begin to switch the peers whose requested route differs from their
 * transport.
 */
void transport_begin_switches(struct transport *transport);
/* Call at each poll while transport->switches is not 0. */
void transport_continue_switches(struct transport *transport);
/* `peer` failed: end its switch. */
void transport_end_switch(struct transport *transport, struct peer *peer);
/* The last slot from `peer` by the old transport was taken. */
void transport_take_switch(struct transport *transport, struct peer *peer);
/* Publish the current route to `peer`, for people and the manager. */
void transport_publish_route(const struct transport *transport, const struct peer *peer);

#endif
