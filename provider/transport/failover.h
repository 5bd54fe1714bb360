/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * failover.h - continuing over the network with a peer of our region when the pair can no longer
 * use the region: a word of the peer is impossible, another member has our slot, or the region's
 * file was truncated.
 *
 *   one                                                  other
 *   completes pending operations in error
 *   `ended` in its connection line, its doorbell  ────▶  does the same, unless it has detected the fault
 * itself FAILOVER, a request  ───────── the network ───────▶ ◀────────────────────────────  FAILOVER, an
 * answer or also a request HELLO, ...            ◀───────────────────────────▶  HELLO, ...
 *
 * Pending operations cannot be trusted, or are not known to have arrived. So they complete in error
 * at both ends, and none is sent again. Operations posted afterwards wait for the new stream, whose
 * frames count from 0 again. An endpoint that sends FAILOVER expects only the new stream, so the
 * other end may send its first frame as soon as it has received one FAILOVER. Late frames of the
 * old stream carry its number, and are dropped.
 *
 * A message can be lost that was sent but not yet received by the application. So if an end had no
 * pending operation, the next operation that is posted there fails instead.
 *
 * A pair fails over once. From then on the words in the region have no effect on it, and a peer
 * that also violates the protocol of the network has no transport left. If no FAILOVER comes for
 * GIVE_UP_NANOSECONDS, the operations posted meanwhile fail.
 */
#ifndef VICINAL_TRANSPORT_FAILOVER_H
#define VICINAL_TRANSPORT_FAILOVER_H

#include "transport/transport.h"

/* May the pair fail over now that `peer` has failed? */
bool transport_may_fail_over(const struct transport *transport, const struct peer *peer);
/* Tell the peer through the region that it failed, if the region permits. */
void transport_publish_end(struct peer *peer);
/*
 * Begin the failover, after all operations with the peer have ended. `told`: at least one of them
 * ended in error.
 */
void transport_fail_over(struct transport *transport, struct peer *peer, bool told);
/* Call at each poll during the failover. */
void transport_continue_failover(struct transport *transport, struct peer *peer);
/* The peer has dropped the old stream: messages go to it from now on. */
void transport_finish_failover(struct transport *transport, struct peer *peer);

/* All peers in the attachment's region fail, and may fail over to the network. */
void transport_break_all(struct attachment *attachment, const char *reason);
/*
 * The region's file was truncated, or its device was unplugged. The memory in its place is private,
 * and contains no other member.
 */
void transport_continue_alone(struct attachment *attachment, const char *reason);

#endif
