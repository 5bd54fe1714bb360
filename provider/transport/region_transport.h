/* SPDX-License-Identifier: BSD-3-Clause */
/* region_transport.h - shared declarations of the files of the transport through the region. */
#ifndef VICINAL_TRANSPORT_REGION_TRANSPORT_H
#define VICINAL_TRANSPORT_REGION_TRANSPORT_H

#include "transport/transport.h"

/*
 * ---- region_transport.c: joining and leaving; peers that are created, fail and leave ----
 */

/* Send to `peer`, which is not connected, through the region. */
void transport_send_by_region(struct peer *peer);
/* Receive from `peer` through the region. */
void transport_receive_by_region(struct peer *peer);
/*
 * May one end access the other's memory in the region? Only in our first region, because heaps, and
 * the lines of single copies, are used only there: at most one region's heap belongs to the
 * application. Not in a region that we left, where only we ourselves are a peer: our slot there may
 * belong to another member.
 */
static inline bool transport_may_map(const struct peer *peer)
{
	return peer->attachment == &peer->attachment->transport->attachments[0] && !peer->alias &&
	       !peer->attachment->region->left;
}
/* The known peer in the attachment's slot with this epoch, by the slot's number or as an alias. */
struct peer *transport_peer_in(const struct attachment *attachment, uint32_t slot, uint32_t epoch);
/* Bind the peer to the words of `slot`. */
void transport_bind_slot(struct attachment *attachment, struct peer *peer, uint32_t slot, uint32_t epoch);
/* Unbind the peer: it shares no region with us. */
void transport_unbind_slot(struct peer *peer);
/* Allocate and free the private tables of an attachment, for a region that is being joined. */
int attachment_allocate(struct attachment *attachment);
void attachment_free(struct attachment *attachment);
/* Divide our arena into rings and chunks, after joining. */
void attachment_divide_arena(struct attachment *attachment);
/*
 * Do we still have our slots? Evicts us from a slot that we lost. Returns false if one was lost
 * since the last call.
 */
bool transport_check_slots(struct transport *transport);
/* Another member has the slot, or the region is gone: everything that goes through it ends. */
void transport_evict(struct attachment *attachment, const char *reason);
/* Report failed peers to the user. Call only where the user may complete operations. */
void transport_report_failures(struct transport *transport);
void transport_publish_arena_used(const struct attachment *attachment);
/* Initialize the peer in `slot` of the attachment's region. */
void transport_reset_peer(struct attachment *attachment, struct peer *peer, uint32_t slot, uint32_t epoch,
			  uint64_t nonce);

/*
 * ---- region_connect.c: offering and accepting rings ----
 */

/*
 * Call once after joining. Doorbells still have the counts of former occupants of our slot, and a
 * member may have found us in the region and rung already. So this checks every member's offer.
 */
void transport_take_first_rings(struct attachment *attachment);
/*
 * Read all doorbells, and accept the rings of members that rang since the last call. Returns how
 * many rang.
 */
uint32_t transport_read_doorbells(struct attachment *attachment);

/* Memory of a ring that the member in `slot` named, or NULL if there can be none. */
const struct ring_slot *transport_named_ring(const struct region *region, uint32_t slot, uint64_t offset,
					     uint32_t slots);

/* ---- region_rings.c: rings that grow and shrink ---- */

/* The ring to `peer` has no room. */
void transport_note_full(struct transport *transport, struct peer *peer);
/* If the ring was full too often, go on in a longer one, if there is memory. Call after ring_credit(). */
void transport_lengthen(struct transport *transport, struct peer *peer);
/* Shorten the rings that were not full for a while, and free the memory. Call at every check. */
void transport_shorten_rings(struct transport *transport);
/* The ring to `peer` ends, or begins anew: free its long ring. Call before its attachment is forgotten. */
void transport_drop_long_ring(struct peer *peer);

/* ---- region_sleep.c ---- */

/* Ring the peer's doorbell, on whichever transport we send, and wake the peer if it sleeps. */
void transport_ring_doorbell(struct peer *peer);

/*
 * ---- region_progress.c: the list of hot rings ----
 */

/* Poll the peer's ring at every poll from now on. */
void transport_warm(struct transport *transport, struct peer *peer);
/* Stop reading the peer's ring. */
void transport_stop_reading(struct transport *transport, struct peer *peer);
/* Stop reading what the peer sends, and tell the peer. */
void transport_stop_receiving(struct transport *transport, struct peer *peer);

#endif
