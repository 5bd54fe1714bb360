/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * failover.h - going on over the network with a peer of our region, when the region is of no use for it any
 * more: there stands what cannot be, in its name; or our slot is another's; or the region's file was cut.
 *
 *   one                                                other
 *   ends in error what was under way with it
 *   `ended` in its connection line, its bell  ──────▶  the same, if it has not found out by itself
 *   FAILOVER, which asks  ────────── the network ──────▶
 *                      ◀────────────────────────────   FAILOVER, which answers, or asks as well
 *   HELLO, ...         ◀───────────────────────────▶   HELLO, ...
 *
 * What was under way cannot be trusted, or is not known to have come: so it ends in error, at both ends,
 * and nothing of it is sent again. What is posted afterwards waits for the new stream, in which frames are
 * numbered from 0 again and nothing is known of before. Who sends a FAILOVER expects that stream and no
 * other: so its first frame may follow as soon as one has come. Frames of the old one may still be on their
 * way, and say which they are of: they are dropped.
 *
 * Messages may be lost that their sender has sent and their receiver has not asked for yet. So if nothing
 * was under way at one end, the next that is asked for there fails in its place.
 *
 * It happens once in the life of a pair. From then on the region has no say in it, and for one that breaks
 * the rules there too no way is left. It ends in HOPE: then what was posted meanwhile fails.
 */
#ifndef VICINAL_TRANSPORT_FAILOVER_H
#define VICINAL_TRANSPORT_FAILOVER_H

#include "transport/transport.h"

/* `peer` failed. Is it one to go on with? */
bool transport_may_fail_over(const struct transport *transport, const struct peer *peer);
/* Tell a peer that failed that it did, in the region, if that is of use. */
void transport_publish_end(struct peer *peer);
/* A peer that may fail over, and of which everything has ended: begin anew. Was there anything, to tell of
 * it? */
void transport_fail_over(struct transport *transport, struct peer *peer, bool told);
/* At each poll while it is failing over. */
void transport_continue_failover(struct transport *transport, struct peer *peer);
/* It has forgotten the old stream: from here on it is sent to. */
void transport_finish_failover(struct transport *transport, struct peer *peer);

/* All peers of the attachment's region fail, and may be gone on with over the network. */
void transport_break_all(struct attachment *attachment, const char *reason);
/*
 * The region's file was cut, or its device unplugged: from here on the memory in its place is our own, and
 * nobody else is in it.
 */
void transport_continue_alone(struct attachment *attachment, const char *reason);

#endif
