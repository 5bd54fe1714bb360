/* SPDX-License-Identifier: BSD-3-Clause */
/* region_path.c - the path through the region: joining and leaving, and peers that come, fail and go. */
#include "path/region_path.h"

#include "path/move.h"
#include "path/network.h"
#include "path/renew.h"

#include <stdlib.h>
#include <sys/mman.h>

/* What came over the network from one that the region says is gone is looked for so long. */
#define GONE_NANOSECONDS UINT64_C(1000000000)

static void divide_arena(struct path *path)
{
	struct region *region = path->region;
	uint64_t arena = section_arena_end(region) - SECTION_ARENA_OFFSET(region->members);
	/* A ring of the smallest kind for everybody, or an eighth if that is more. */
	uint64_t rings = (uint64_t)region->members * RING_SLOTS_MIN * sizeof(struct ring_slot);

	if (rings < arena / 8)
		rings = arena / 8;
	/* What is left for chunks is 128 KiB at least: region_check_header() saw to SECTION_LEAST. */
	rings = rings / REGION_PAGE * REGION_PAGE;
	path->ring_next = (uint32_t)SECTION_ARENA_OFFSET(region->members);
	path->ring_end = path->ring_next + (uint32_t)rings;
	chunk_pool_open(&path->chunks, region, path->member->slot, path->ring_end, arena - rings);
}

static size_t peers_bytes(const struct region *region)
{
	return (region->members + NETWORK_PEERS_MOST) * sizeof(struct peer *);
}

int path_open(struct path **opened, struct region *region, uint32_t endpoint, uint64_t timeout,
	      const struct path_user *user, void *context, struct region_error *error)
{
	struct path *path = calloc(1, sizeof(*path));
	uint32_t members = region->members;
	int result = -ENOMEM;

	if (path == NULL)
		return region_fail(error, -ENOMEM, "no memory is left for an endpoint: free some");
	path->region = region;
	path->user = user;
	path->context = context;
	path->timeout = timeout;
	/* Room for peers beyond the region is address space alone, until there are any. */
	path->peers = mmap(NULL, peers_bytes(region), PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (path->peers == MAP_FAILED)
		path->peers = NULL;
	path->peer_end = members;
	path->hot = calloc(members, sizeof(struct peer *));
	path->doorbells_seen = calloc(members, sizeof(*path->doorbells_seen));
	path->ring_of = calloc(members, sizeof(*path->ring_of));
	path->ring_slots_of = calloc(members, sizeof(*path->ring_slots_of));
	if (path->peers == NULL || path->hot == NULL || path->doorbells_seen == NULL ||
	    path->ring_of == NULL || path->ring_slots_of == NULL)
		(void)region_fail(error, -ENOMEM, "no memory is left for an endpoint: free some");
	else
		result = member_join(region, endpoint, timeout, &path->member, error);
	if (result != 0) {
		path_close(path);
		return result;
	}
	result = heap_open(&path->heap, path->member, error);
	if (result != 0) {
		path_close(path);
		return result;
	}
	divide_arena(path);
	path_take_first_rings(path);
	*opened = path;
	return 0;
}

void path_close(struct path *path)
{
	if (path->member != NULL) {
		path_publish_counts(path);
		/* What the application has there keeps the slot from being taken. */
		if (path->heap != NULL)
			heap_leave(path->heap, path->member);
		else
			member_leave(path->member);
	}
	network_close(path);
	if (path->peers != NULL)
		/* One of the region that is in the network too has a place there besides: it comes first. */
		for (uint32_t slot = path->peer_end; slot-- > 0;)
			if (path->peers[slot] != NULL && path->peers[slot]->slot == slot)
				free(path->peers[slot]);
	if (path->peers != NULL)
		(void)munmap(path->peers, peers_bytes(path->region));
	free(path->hot);
	free(path->doorbells_seen);
	free(path->ring_of);
	free(path->ring_slots_of);
	free(path);
}

void path_aim_at_region(struct path *path, struct peer *peer)
{
	peer->pool = &path->chunks;
	peer->active_word = &section_header(path->region, peer->slot)->active[path->member->slot / 64];
	peer->active_bit = UINT64_C(1) << path->member->slot % 64;
	peer->account = (struct chunk_account){
		.credit = section_credit(path->region, peer->slot, path->member->slot),
	};
}

void path_expect_ring(const struct path *path, struct peer *peer)
{
	peer->section = (shared_bytes *)region_section(path->region, peer->slot);
	peer->section_bytes = path->region->section_bytes;
}

void path_reset_peer(struct path *path, struct peer *peer, uint32_t slot, uint32_t epoch, uint64_t nonce)
{
	memset(peer, 0, sizeof(*peer));
	peer->slot = slot;
	peer->epoch = epoch;
	peer->nonce = nonce;
	peer->state = PEER_PRESENT;
	peer->mapped = true;
	peer->claim = &region_slot(path->region, slot)->claim;
	peer->doorbell = section_doorbell(path->region, slot, path->member->slot);
	peer->doorbell_count = shared_load_u32(peer->doorbell); /* our own word, from a former life */
	peer->sleeping_word = &section_header(path->region, slot)->sleeping;
	peer->interrupts = path->interrupts;
	path_aim_at_region(path, peer);
	path_expect_ring(path, peer);
	/* Now, since the region may be of no use when it is needed. */
	if (!member_core(path->region, slot, epoch, &peer->where))
		peer->where = (struct member_core){0};
}

void path_fail(struct path *path, struct peer *peer, int failure, const char *reason)
{
	if (peer->state == PEER_FAILED)
		return;
	peer->state = PEER_FAILED;
	peer->failure = failure != 0 ? failure : -EPROTO;
	peer->reason = reason;
	peer->broken = peer->failure == -EPROTO;
	path->failures++;
	path->attention++;
}

void path_break(struct path *path, struct peer *peer, int failure, const char *reason)
{
	if (peer->state == PEER_FAILED)
		return;
	path_fail(path, peer, failure, reason);
	peer->broken = true;
}

static void publish_counts_beyond(const struct path *path, const struct peer *peer)
{
	uint32_t place = peer->slot - path->region->members;

	if (place >= REGION_NETWORK_LINES)
		return;
	struct network_line *line = section_network(path->region, path->member->slot, place);
	shared_store_u64(&line->nonce, peer->nonce);
	shared_store_u64(&line->messages, peer->messages);
	shared_store_u64(&line->bytes, peer->bytes);
}

static void publish_counts_of(const struct path *path, const struct peer *peer)
{
	if (path->evicted || !peer->sending)
		return;
	if (peer->slot >= path->region->members) {
		publish_counts_beyond(path, peer);
		return;
	}
	struct connection_line *line = section_connection(path->region, path->member->slot, peer->slot);
	shared_store_u64(&line->messages, peer->messages);
	shared_store_u64(&line->bytes, peer->bytes);
}

void path_report_failures(struct path *path)
{
	for (uint32_t slot = 0; path->failures > 0 && slot < path->peer_end; slot++) {
		struct peer *peer = path->peers[slot];
		if (peer == NULL || peer->state != PEER_FAILED || peer->reported)
			continue;
		bool renews = path_may_renew(path, peer);
		peer->reported = true;
		path->failures--;
		path->attention--;
		path_end_move(path, peer);
		path_tell_end(path, peer);
		path_stop_receiving(path, peer);
		publish_counts_of(path, peer); /* the last that people will see of it */
		peer->sending = false;
		if (peer->beyond != NULL)
			network_stop(path, peer, renews);
		if (peer->network == NULL || network_is_quiet(peer))
			chunk_recall(peer->pool, &peer->account);
		/* Another may fail meanwhile: it is told at the next poll, if its slot is behind us. */
		bool told = path->user->failed(path->context, peer);
		if (renews)
			path_renew(path, peer, told);
	}
}

struct peer *path_meet(struct path *path, uint32_t slot, uint32_t epoch, uint64_t nonce)
{
	struct peer *peer = NULL;

	if (path->evicted || !member_confirm(path->region, slot, epoch, nonce))
		return NULL;
	peer = path->peers[slot];
	if (peer != NULL && peer->epoch == epoch)
		return peer;
	if (peer == NULL) {
		peer = calloc(1, path->user->peer_bytes);
		if (peer == NULL)
			return NULL;
		path->peers[slot] = peer;
	} else if (peer->nonce == nonce) {
		/* A successor would have chosen its own: somebody wrote over the claim word. */
		if (peer->renewal == RENEWAL_NONE)
			path_break(path, peer, -EPROTO, "somebody wrote over its slot");
		return NULL;
	} else {
		/* Somebody else took the slot: what concerned the former occupant ends first. */
		path_fail(path, peer, -ECONNRESET, "it is gone, and its slot was taken by another");
		path_report_failures(path);
		if (peer->beyond != NULL && !network_bury(path, peer))
			return NULL;
		path->user->replaced(path->context, peer);
	}
	path_reset_peer(path, peer, slot, epoch, nonce);
	return peer;
}

/* What we write now would be another's, or nobody's. */
static void evict(struct path *path, const char *reason)
{
	path->evicted = true;
	path_break_all(path, reason);
}

/* What becomes of the heap is the heap's own affair: see region/heap.c. */
void path_lose(struct path *path)
{
	const char *reason = "this process was forked, and the endpoint is its parent's";

	member_lose(path->member);
	evict(path, reason);
	network_lose(path, reason);
}

/*
 * We were paused for so long that another has our slot: what we write now would be its. Or
 * the region is gone altogether.
 */
static void check_ourselves(struct path *path)
{
	if (path->evicted || member_is_joined(path->member))
		return;
	if (atomic_load_explicit(&path->region->cut, memory_order_relaxed))
		path_go_on_alone(path);
	else
		evict(path, "this endpoint was taken for dead, and another has its slot");
	if (path->heap != NULL)
		heap_stop(path->heap);
}

/* Over the network the last of one that is gone needs a moment, and says itself that it leaves. */
static bool may_be_on_its_way(struct peer *peer, uint64_t now)
{
	if (peer->gone == 0)
		peer->gone = now;
	return now - peer->gone < GONE_NANOSECONDS;
}

void path_check_peers(struct path *path)
{
	uint64_t now = monotonic_now();

	check_ourselves(path);
	for (uint32_t slot = 0; slot < path->region->members; slot++) {
		struct peer *peer = path->peers[slot];
		uint64_t control = 0;
		if (peer == NULL || peer->state == PEER_FAILED || peer->renewal != RENEWAL_NONE)
			continue;
		enum member_state state =
			member_observe(path->member, slot, peer->epoch, &peer->pulse, now, path->timeout);
		if (peer->framed && state != MEMBER_ALIVE && may_be_on_its_way(peer, now))
			continue;
		if (state == MEMBER_ALIVE) {
			peer->gone = 0;
			(void)path_refresh(path, peer, 0);
			if (peer->receiving && !ring_is_sound(&peer->in) && path_intact(peer))
				path_fail(path, peer, -EPROTO, "its ring was written over");
			continue;
		}
		/* What it sent before it went is still there: read that first. */
		if (peer->receiving && ring_peek(&peer->in, &control) && path_intact(peer)) {
			path_warm(path, peer);
			continue;
		}
		if (state == MEMBER_LEFT)
			path_fail(path, peer, -ECONNABORTED, "it left the region");
		else if (path_intact(peer))
			path_fail(path, peer, -ECONNRESET, "it died");
		else /* or somebody wrote over its slot: it may live */
			path_break(path, peer, -ECONNRESET, "its slot is another's: it died");
	}
	network_check(path, now);
}

void path_publish_arena_used(const struct path *path)
{
	uint32_t rings = path->ring_next - (uint32_t)SECTION_ARENA_OFFSET(path->region->members);
	uint32_t used = rings;

	for (uint32_t i = 0; i < CHUNK_CLASSES; i++) {
		const struct chunk_class *class = &path->chunks.classes[i];
		used += (class->count - class->free_count) * class->stride;
	}
	shared_store_u32(&section_header(path->region, path->member->slot)->arena_used, used);
}

void path_publish_counts(struct path *path)
{
	if (path->evicted)
		return;
	uint32_t end = path->region->members + REGION_NETWORK_LINES;
	for (uint32_t slot = 0; slot < path->peer_end && slot < end; slot++)
		if (path->peers[slot] != NULL)
			publish_counts_of(path, path->peers[slot]);
	path_publish_arena_used(path);
}
