/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * failover.h - continuing over the network with a peer of our region, when the region is of no use for the
 * pair any more: a word of the peer is impossible, or another member has our slot, or the region's file was
 * truncated.
 *
 *   one                                                  other
 *   ends in error what was under way
 *   `ended` in its connection line, its doorbell  ────▶  does the same, if it has not found out by itself
 *   FAILOVER, which asks  ──────── the network ───────▶
 *                         ◀────────────────────────────  FAILOVER, which answers, or asks as well
 *   HELLO, ...            ◀───────────────────────────▶  HELLO, ...
 *
 * What was under way cannot be trusted, or is not known to have arrived. So it ends in error at both ends,
 * and none of it is sent again. What is posted afterwards waits for the new stream, in which frames count
 * from 0 again. An endpoint that sends FAILOVER expects the new stream only, so its first frame may follow
 * as soon as one FAILOVER has come. Late frames of the old stream say so, and are dropped.
 *
 * A message can be lost that its sender has sent and its receiver has not asked for yet. So if nothing was
 * under way at one end, the next operation that is posted there fails instead.
 *
 * A pair fails over once. From then on the region has no say in it, and a peer that breaks the rules of the
 * network too has no transport left. If no FAILOVER comes for GIVE_UP_NANOSECONDS, what was posted meanwhile
 * fails.
 */
#ifndef VICINAL_TRANSPORT_FAILOVER_H
#define VICINAL_TRANSPORT_FAILOVER_H

#include "transport/transport.h"

/* `peer` failed. May the pair fail over? */
bool transport_may_fail_over(const struct transport *transport, const struct peer *peer);
/* Tell a peer in the region that it failed, if that is of use. */
void transport_publish_end(struct peer *peer);
/* Begin to fail over, once all of the peer's operations have ended. `told`: one of them ended in error. */
void transport_fail_over(struct transport *transport, struct peer *peer, bool told);
/* At each poll while it is failing over. */
void transport_continue_failover(struct transport *transport, struct peer *peer);
/* The peer has forgotten the old stream: from here on messages go to it. */
void transport_finish_failover(struct transport *transport, struct peer *peer);

/* All peers of the attachment's region fail, and may fail over to the network. */
void transport_break_all(struct attachment *attachment, const char *reason);
/*
 * The region's file was cut, or its device unplugged: from here on the memory in its place is our own, and
 * nobody else is in it.
 */
void transport_continue_alone(struct attachment *attachment, const char *reason);

#endif
