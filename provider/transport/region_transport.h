/* SPDX-License-Identifier: BSD-3-Clause */
/* region_transport.h - what the files of the transport through the region need of each other. */
#ifndef VICINAL_TRANSPORT_REGION_TRANSPORT_H
#define VICINAL_TRANSPORT_REGION_TRANSPORT_H

#include "transport/transport.h"

/* ---- region_transport.c: joining and leaving; peers that come, fail and go ---- */

/* What we send to `peer`, which is not connected, goes through the region. */
void transport_send_by_region(struct peer *peer);
/* What `peer` sends comes through the region. */
void transport_receive_by_region(struct peer *peer);
/*
 * May one end reach into the other's memory, where that lies in the region? Heaps, and the lines of single
 * copies, are used in the first of our regions alone: no more than one region's heap is the application's.
 * Not in one that we left, where only we ourselves are met: the slot that a line names there is not ours.
 */
static inline bool transport_may_map(const struct peer *peer)
{
	return peer->attachment == &peer->attachment->transport->attachments[0] && !peer->alias &&
	       !peer->attachment->region->left;
}
/* Who is in the attachment's slot in this epoch, as far as we know it: by the slot's number, or as a guest.
 */
struct peer *transport_peer_in(const struct attachment *attachment, uint32_t slot, uint32_t epoch);
/* The words of the peer in `slot`, which is met there. */
void transport_bind_slot(struct attachment *attachment, struct peer *peer, uint32_t slot, uint32_t epoch);
/* It is in no region with us. */
void transport_unbind_slot(struct peer *peer);
/* Its arena and tables of ours, for a region that was just joined; and giving them back. */
int attachment_allocate(struct attachment *attachment);
void attachment_free(struct attachment *attachment);
/* Into rings and chunks, once we are a member. */
void attachment_divide_arena(struct attachment *attachment);
/* Have we still our slots? One that we lost is evicted. Returns false if one was lost since the last time. */
bool transport_check_slots(struct transport *transport);
/* The slot is another's, or the region is gone: all that is reached through it ends. */
void transport_evict(struct attachment *attachment, const char *reason);
/* Tell the user of the peers that failed, from a place where it may complete operations. */
void transport_report_failures(struct transport *transport);
void transport_publish_arena_used(const struct attachment *attachment);
/* All that we know of the peer in `slot` of the attachment's region, of which nothing is known so far. */
void transport_reset_peer(struct attachment *attachment, struct peer *peer, uint32_t slot, uint32_t epoch,
			  uint64_t nonce);

/* ---- region_connect.c: rings offered and taken ---- */

/*
 * Once, when we have joined: doorbells still count what was rung for former occupants of our slot,
 * and somebody may have found us in the region and rung already. So every offer is looked at.
 */
void transport_take_first_rings(struct attachment *attachment);
/* Look who rang since the last time, and take the rings that are offered. Returns how many rang. */
uint32_t transport_read_doorbells(struct attachment *attachment);

/* ---- region_sleep.c ---- */

/* Ring the peer's doorbell, whichever way what we send goes, and wake it if it sleeps. */
void transport_ring_doorbell(struct peer *peer);

/* ---- region_progress.c: which rings are looked at ---- */

/* Look at its ring at every poll from now on. */
void transport_warm(struct transport *transport, struct peer *peer);
/* Read no more of its ring. */
void transport_stop_reading(struct transport *transport, struct peer *peer);
/* Read no more of what it sends, and let it know. */
void transport_stop_receiving(struct transport *transport, struct peer *peer);

#endif
