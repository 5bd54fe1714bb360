/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * region_transport.c - the transport through the region: joining and leaving, and peers that are
 * created, fail and leave.
 */
#include "transport/region_transport.h"

#include "region/region_offer.h"
#include "transport/detach.h"
#include "transport/failover.h"
#include "transport/network.h"
#include "transport/reattach.h"
#include "transport/states.h"
#include "transport/switch.h"

#include <stdlib.h>
#include <sys/mman.h>

/* What SECTION_BYTES_MIN leaves for chunks, except one page. */
#define CHUNKS_MIN (128U * 1024U)

void attachment_divide_arena(struct attachment *attachment)
{
	struct region *region = attachment->region;
	uint64_t arena = section_arena_end(region) - SECTION_ARENA_OFFSET(region->members);
	/* A smallest ring for each member, or an eighth of the arena if that is more. */
	uint64_t needed = (uint64_t)region->members * RING_SLOTS_MIN * sizeof(struct ring_slot);
	uint64_t rings = needed < arena / 8 ? arena / 8 : needed;
	/*
	 * Each member's rings begin at another line of a page, if there is room. Otherwise the
	 * first rings of all members would have the same offset in a page, and their slots would
	 * share a few sets of the receiver's cache: a load of each of 511 slots took 3.3 ns, with
	 * this offset 0.9.
	 */
	uint64_t colour = attachment->member->slot % (REGION_PAGE / REGION_LINE) * REGION_LINE;

	/* At least 128 KiB are left for chunks, except that page: see SECTION_BYTES_MIN. */
	rings = REGION_ROUND_UP(rings, REGION_PAGE);
	if (rings - needed < REGION_PAGE && arena - rings >= CHUNKS_MIN + REGION_PAGE)
		rings += REGION_PAGE;
	attachment->ring_begin =
		(uint32_t)(SECTION_ARENA_OFFSET(region->members) + (colour <= rings - needed ? colour : 0));
	attachment->ring_next = attachment->ring_begin;
	attachment->ring_slots_kept = RING_SLOTS_MIN;
	attachment->ring_end = (uint32_t)(SECTION_ARENA_OFFSET(region->members) + rings);
	chunk_pool_open(&attachment->chunks, region, attachment->member->slot, attachment->ring_end,
			arena - rings);
}

/* For the maximum number of peers. */
static size_t peers_bytes(void)
{
	return TRANSPORT_PEERS_MAX * sizeof(struct peer *);
}

void attachment_free(struct attachment *attachment)
{
	free(attachment->doorbells_seen);
	free(attachment->ring_of);
	free(attachment->ring_slots_of);
	free(attachment->spare_rings);
	free(attachment->aliases);
}

int attachment_allocate(struct attachment *attachment)
{
	struct transport *transport = attachment->transport;
	uint32_t members = attachment->region->members;
	struct hot_ring *hot = realloc(transport->hot, (transport->hot_room + members) * sizeof(*hot));

	if (hot != NULL)
		transport->hot = hot;
	attachment->doorbells_seen = calloc(members, sizeof(*attachment->doorbells_seen));
	attachment->ring_of = calloc(members, sizeof(*attachment->ring_of));
	attachment->ring_slots_of = calloc(members, sizeof(*attachment->ring_slots_of));
	attachment->spare_rings = calloc(members, sizeof(*attachment->spare_rings));
	if (hot == NULL || attachment->doorbells_seen == NULL || attachment->ring_of == NULL ||
	    attachment->ring_slots_of == NULL || attachment->spare_rings == NULL) {
		attachment_free(attachment);
		return -ENOMEM;
	}
	transport->hot_room += members;
	return 0;
}

/* Attach to one more region. */
static int open_attachment(struct transport *transport, struct region *region, uint32_t endpoint,
			   struct region_error *error)
{
	struct attachment *attachment = &transport->attachments[transport->attachment_count];

	*attachment = (struct attachment){
		.transport = transport, .region = region, .base = transport->members, .endpoint = endpoint};
	if (attachment_allocate(attachment) != 0)
		return region_fail(error, -ENOMEM, "no memory is left for an endpoint: free some");
	int result = member_join_as(transport->attachment_count > 0 ? transport->attachments[0].member : NULL,
				    region, endpoint, transport->timeout, &attachment->member, error);
	if (result != 0) {
		attachment_free(attachment);
		return result;
	}
	transport->attachment_count++;
	transport->members += region->members;
	transport->peer_end = transport->members;
	attachment_divide_arena(attachment);
	return 0;
}

int transport_open(struct transport **opened, struct region *region, uint32_t endpoint, uint64_t timeout,
		   const struct transport_user *user, void *context, struct region_error *error)
{
	struct transport *transport = calloc(1, sizeof(*transport));

	if (transport == NULL)
		return region_fail(error, -ENOMEM, "no memory is left for an endpoint: free some");
	transport->user = user;
	transport->context = context;
	transport->timeout = timeout;
	transport->rated = monotonic_now();
	/* For peers that do not exist, this reserves only address space. */
	transport->peers = mmap(NULL, peers_bytes(), PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (transport->peers == MAP_FAILED) {
		free(transport);
		return region_fail(error, -ENOMEM, "no memory is left for an endpoint: free some");
	}
	int result = open_attachment(transport, region, endpoint, error);
	if (result == 0)
		result = heap_open(&transport->heap, transport->attachments[0].member, error);
	if (result != 0) {
		transport_close(transport);
		return result;
	}
	transport_take_first_rings(&transport->attachments[0]);
	*opened = transport;
	return 0;
}

int transport_join(struct transport *transport, struct region *region, uint32_t endpoint,
		   struct region_error *error)
{
	int result = transport->attachment_count < ATTACHMENTS_MAX
			     ? open_attachment(transport, region, endpoint, error)
			     : region_fail(error, -E2BIG, "an endpoint can be in %u regions and no more",
					   ATTACHMENTS_MAX);

	if (result == 0)
		transport_take_first_rings(&transport->attachments[transport->attachment_count - 1]);
	return result;
}

void transport_close(struct transport *transport)
{
	transport_publish_counts(transport);
	region_withdraw(transport->heap);
	for (uint32_t i = 0; i < transport->attachment_count; i++) {
		/* Memory of the application in the heap keeps the slot occupied. */
		if (i == 0 && transport->heap != NULL)
			heap_leave(transport->heap, transport->attachments[i].member);
		else
			member_leave(transport->attachments[i].member);
	}
	network_close(transport);
	/*
	 * A peer of a region that is also in the network has a second entry, with a higher number:
	 * free it only by its own number.
	 */
	for (uint32_t source = transport->peer_end; source-- > 0;)
		if (transport->peers[source] != NULL && transport->peers[source]->source == source)
			free(transport->peers[source]);
	(void)munmap(transport->peers, peers_bytes());
	for (uint32_t i = 0; i < transport->attachment_count; i++) {
		attachment_free(&transport->attachments[i]);
		/* No other endpoint of this process uses a region to which we came back. */
		if (transport->attachments[i].base == TRANSPORT_NO_BASE)
			region_detach(transport->attachments[i].region);
	}
	free(transport->hot);
	free(transport);
}

void transport_send_by_region(struct peer *peer)
{
	struct attachment *attachment = peer->attachment;
	uint32_t self = attachment->member->slot;

	peer->pool = &attachment->chunks;
	peer->active_word = &section_header(attachment->region, peer->slot)->active[self / 64];
	peer->active_bit = UINT64_C(1) << self % 64;
	peer->account = (struct chunk_account){
		.credit = section_credit(attachment->region, peer->slot, self),
	};
}

void transport_receive_by_region(struct peer *peer)
{
	const struct region *region = peer->attachment->region;

	peer->section = (shared_bytes *)region_section(region, peer->slot);
	peer->section_bytes = region->section_bytes;
	peer->claim = &region_slot(region, peer->slot)->claim;
}

void transport_bind_slot(struct attachment *attachment, struct peer *peer, uint32_t slot, uint32_t epoch)
{
	struct region *region = attachment->region;

	peer->attachment = attachment;
	peer->own_claim = &region_slot(region, attachment->member->slot)->claim;
	peer->own_tenure = attachment->member->epoch;
	peer->slot = slot;
	peer->tenure = epoch;
	peer->last_heartbeat = (struct last_heartbeat){0};
	peer->gone = 0;
	peer->woken = 0;
	peer->doorbell = section_doorbell(region, slot, attachment->member->slot);
	peer->doorbell_count =
		shared_load_u32(peer->doorbell); /* our own word, with the value of a former occupant */
	peer->sleeping_word = &section_header(region, slot)->sleeping;
}

void transport_unbind_slot(struct peer *peer)
{
	static shared_u64 nobody;

	peer->own_claim = &nobody;
	peer->own_tenure = 0;
}

struct peer *transport_peer_in(const struct attachment *attachment, uint32_t slot, uint32_t epoch)
{
	struct peer *alias = attachment->aliases != NULL ? attachment->aliases[slot] : NULL;
	struct peer *peer = attachment->base != TRANSPORT_NO_BASE
				    ? attachment->transport->peers[attachment->base + slot]
				    : NULL;

	if (alias != NULL && alias->tenure == epoch)
		return alias;
	return peer != NULL && peer->attachment == attachment && peer->tenure == epoch ? peer : NULL;
}

void transport_reset_peer(struct attachment *attachment, struct peer *peer, uint32_t slot, uint32_t epoch,
			  uint64_t nonce)
{
	struct region *region = attachment->region;

	memset(peer, 0, sizeof(*peer));
	peer->source = attachment->base + slot;
	peer->epoch = epoch;
	peer->nonce = nonce;
	peer->state = PEER_PRESENT;
	transport_bind_slot(attachment, peer, slot, epoch);
	peer->mapped = transport_may_map(peer);
	transport_send_by_region(peer);
	transport_receive_by_region(peer);
	/* Read these now, because the region may be unusable when they are needed. */
	peer->said = member_identity_said(region, slot, epoch, nonce);
	if (!member_core(region, slot, epoch, &peer->where))
		peer->where = (struct member_core){0};
}

void transport_fail(struct transport *transport, struct peer *peer, int failure, const char *reason)
{
	if (peer->state == PEER_FAILED)
		return;
	peer_set_state(peer, PEER_FAILED);
	peer->failure = failure != 0 ? failure : -EPROTO;
	peer->reason = reason;
	peer->broken = peer->failure == -EPROTO;
	transport->failures++;
	transport->attention++;
}

void transport_break(struct transport *transport, struct peer *peer, int failure, const char *reason)
{
	if (peer->state == PEER_FAILED)
		return;
	transport_fail(transport, peer, failure, reason);
	peer->broken = true;
}

/* In our first region. A reader identifies the peer by the nonce. */
static void publish_counts_beyond(const struct transport *transport, const struct peer *peer)
{
	const struct attachment *home = transport->attachments[0].next != NULL
						? transport->attachments[0].next
						: &transport->attachments[0];
	uint32_t index = network_index_of(peer);

	if (!attachment_holds_slot(home) || index >= REGION_NETWORK_LINES)
		return;
	struct network_line *line = section_network(home->region, home->member->slot, index);
	shared_store_u64(&line->nonce, peer->nonce);
	shared_store_u64(&line->messages, peer->messages);
	shared_store_u64(&line->bytes, peer->bytes);
}

static void publish_counts_of(const struct transport *transport, const struct peer *peer)
{
	const struct attachment *attachment = peer->attachment;

	if (!peer->sending)
		return;
	if (attachment == NULL) {
		publish_counts_beyond(transport, peer);
		return;
	}
	if (!attachment_holds_slot(attachment))
		return;
	struct connection_line *line =
		section_connection(attachment->region, attachment->member->slot, peer->slot);
	shared_store_u64(&line->messages, peer->messages);
	shared_store_u64(&line->bytes, peer->bytes);
}

void transport_report_failures(struct transport *transport)
{
	for (uint32_t source = 0; transport->failures > 0 && source < transport->peer_end; source++) {
		struct peer *peer = transport->peers[source];
		if (peer == NULL || peer->state != PEER_FAILED || peer->reported)
			continue;
		bool fails_over = transport_may_fail_over(transport, peer);
		peer->reported = true;
		transport->failures--;
		transport->attention--;
		transport_end_switch(transport, peer);
		transport_publish_end(peer);
		transport_stop_receiving(transport, peer);
		publish_counts_of(transport, peer); /* the final counts of this peer */
		transport_drop_long_ring(peer);
		peer->sending = false;
		if (peer->beyond != NULL)
			network_stop(peer, fails_over);
		if (peer->network == NULL || network_is_quiet(peer))
			chunk_recall(peer->pool, &peer->account);
		/*
		 * Another peer may fail meanwhile. If its number is lower, the next poll reports
		 * it.
		 */
		bool told = transport->user->failed(transport->context, peer);
		if (fails_over)
			transport_fail_over(transport, peer, told);
	}
}

struct peer *transport_new_peer(const struct transport *transport)
{
	size_t bytes = transport->user->peer_bytes;
	struct peer *peer = aligned_alloc(REGION_LINE, bytes);

	if (peer == NULL)
		return NULL;
	memset(peer, 0, bytes);
	transport_unbind_slot(peer);
	return peer;
}

struct peer *transport_meet(struct transport *transport, uint32_t source, uint32_t epoch, uint64_t nonce)
{
	struct attachment *attachment = transport_attachment(transport, source);
	struct peer *peer = NULL;

	if (attachment == NULL || attachment->evicted ||
	    !member_confirm(attachment->region, source - attachment->base, epoch, nonce) ||
	    member_is_alias(attachment->region, source - attachment->base))
		return NULL;
	peer = transport->peers[source];
	if (peer != NULL && peer->epoch == epoch)
		return peer;
	/* The number belongs to a peer that left the region and lives on elsewhere. */
	if (peer != NULL && (peer->attachment != attachment || peer->alias) && peer->state != PEER_FAILED)
		return transport_meet_alias(attachment, source - attachment->base, epoch, nonce);
	if (peer == NULL) {
		/*
		 * The member has left, and sent HELLO from its network address: it has another
		 * number.
		 */
		if (member_departed(attachment->region, source - attachment->base, epoch) &&
		    network_has_met(transport, nonce))
			return NULL;
		peer = transport_new_peer(transport);
		if (peer == NULL)
			return NULL;
		transport->peers[source] = peer;
	} else if (peer->nonce == nonce) {
		/* A successor would have chosen another nonce: the claim word was overwritten. */
		if (peer->failover == FAILOVER_NONE)
			transport_break(transport, peer, -EPROTO, "its claim word was overwritten");
		return NULL;
	} else {
		/*
		 * Another member took the slot: first end everything that concerns the former
		 * occupant.
		 */
		transport_fail(transport, peer, -ECONNRESET, "it is gone, and another member took its slot");
		transport_report_failures(transport);
		if (peer->beyond != NULL && !network_retire(transport, peer))
			return NULL;
		transport->user->replaced(transport->context, peer);
	}
	transport_reset_peer(attachment, peer, source - attachment->base, epoch, nonce);
	if (member_departed(attachment->region, peer->slot, epoch) &&
	    !transport_detach_at_once(transport, peer))
		transport_fail(transport, peer, -ECONNABORTED, "it left the region");
	return peer;
}

/* Heaps are handled separately: see region/heap.c. */
void transport_after_fork(struct transport *transport)
{
	const char *reason = "this process was forked, and the endpoint belongs to its parent";

	/*
	 * First, because the core belongs to the parent, and the following calls would poll it for
	 * first contacts.
	 */
	network_after_fork(transport, reason);
	for (uint32_t i = 0; i < transport->attachment_count; i++) {
		struct attachment *attachment = &transport->attachments[i];
		member_after_fork(attachment->member);
		if (attachment->base == TRANSPORT_NO_BASE)
			region_after_fork(attachment->region);
		transport_evict(attachment, reason);
	}
}

void transport_publish_arena_used(const struct attachment *attachment)
{
	uint32_t used = attachment->ring_next - attachment->ring_begin;

	for (uint32_t i = 0; i < CHUNK_CLASSES; i++) {
		const struct chunk_class *class = &attachment->chunks.classes[i];
		used += (class->count - class->free_count) * class->stride;
	}
	shared_store_u32(&section_header(attachment->region, attachment->member->slot)->arena_used, used);
}

void transport_publish_counts(struct transport *transport)
{
	uint32_t end = transport->members + REGION_NETWORK_LINES;

	for (uint32_t source = 0; source < transport->peer_end && source < end; source++)
		if (transport->peers[source] != NULL)
			publish_counts_of(transport, transport->peers[source]);
	for (uint32_t i = 0; i < transport->attachment_count; i++)
		if (attachment_holds_slot(&transport->attachments[i])) {
			transport_publish_arena_used(&transport->attachments[i]);
			if (i == 0)
				region_publish_counts(transport->heap, transport->attachments[i].member);
		}
}
