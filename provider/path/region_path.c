/* SPDX-License-Identifier: BSD-3-Clause */
/* region_path.c - the path through the region: joining, meeting, connecting, accepting. */
#include "path/path.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

/* Rings of 128 slots take windows of 64 small messages twice; later peers get smaller ones. */
#define RING_SLOTS_USUAL 128U

/* Up to so many rings are all polled at every poll: a poll of an idle ring is an L1 hit. */
#define HOT_RINGS_KEPT 8U
/* Beyond that, a ring that was idle for so many polls is left to its doorbell. */
#define IDLE_POLLS_COLD 4096U
/* A cold ring is looked at once in so many polls anyway, since a doorbell can be lost. */
#define POLLS_PER_SWEEP 4096U

/* How often the clock is read to see whether it is time to look for dead peers. */
#define POLLS_PER_CHECK_IDLE 1024U
#define POLLS_PER_CHECK_BUSY 65536U

static void publish_active(struct path *path, uint32_t slot, bool hot)
{
	uint64_t bit = UINT64_C(1) << slot % 64;

	path->active[slot / 64] = hot ? path->active[slot / 64] | bit : path->active[slot / 64] & ~bit;
	/* While one sleeps, every sender must ring. */
	if (path->sleepers == 0 && !path->evicted)
		shared_store_u64(&section_header(path->region, path->member->slot)->active[slot / 64],
				 path->active[slot / 64]);
}

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
	path->peers = calloc(members, sizeof(struct peer *));
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
	result = heap_open(&path->heap, region, path->member->slot, error);
	if (result != 0) {
		path_close(path);
		return result;
	}
	/* Whoever rings after this connects to us, and only those who know our new address do. */
	for (uint32_t slot = 0; slot < members; slot++)
		path->doorbells_seen[slot] =
			shared_load_u32(section_doorbell(region, path->member->slot, slot));
	divide_arena(path);
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
	if (path->peers != NULL)
		for (uint32_t slot = 0; slot < path->region->members; slot++)
			free(path->peers[slot]);
	free(path->peers);
	free(path->hot);
	free(path->doorbells_seen);
	free(path->ring_of);
	free(path->ring_slots_of);
	free(path);
}

static void reset_peer(struct path *path, struct peer *peer, uint32_t slot, uint32_t epoch, uint64_t nonce)
{
	memset(peer, 0, sizeof(*peer));
	peer->slot = slot;
	peer->epoch = epoch;
	peer->nonce = nonce;
	peer->state = PEER_PRESENT;
	peer->active_word = &section_header(path->region, slot)->active[path->member->slot / 64];
	peer->active_bit = UINT64_C(1) << path->member->slot % 64;
	peer->doorbell = section_doorbell(path->region, slot, path->member->slot);
	peer->doorbell_count = shared_load_u32(peer->doorbell); /* our own word, from a former life */
	peer->sleeping_word = &section_header(path->region, slot)->sleeping;
	peer->interrupts = path->interrupts;
	peer->account.credit = section_credit(path->region, slot, path->member->slot);
}

static void cool(struct path *path, uint32_t index)
{
	struct peer *peer = path->hot[index];

	peer->hot = false;
	path->hot[index] = path->hot[--path->hot_count];
	publish_active(path, peer->slot, false);
}

static void stop_receiving(struct path *path, struct peer *peer)
{
	for (uint32_t i = 0; peer->hot && i < path->hot_count; i++)
		if (path->hot[i] == peer)
			cool(path, i);
	/* The sender may live, and wait for us to read on. */
	if (peer->receiving && !path->evicted)
		ring_refuse(peer->in.credit, peer->in.connection);
	peer->receiving = false;
}

void path_fail(struct path *path, struct peer *peer, int failure, const char *reason)
{
	if (peer->state == PEER_FAILED)
		return;
	peer->state = PEER_FAILED;
	peer->failure = failure != 0 ? failure : -EPROTO;
	peer->reason = reason;
	path->failures++;
}

static void publish_counts_of(const struct path *path, const struct peer *peer)
{
	struct connection_line *line = section_connection(path->region, path->member->slot, peer->slot);

	if (path->evicted || !peer->sending)
		return;
	shared_store_u64(&line->messages, peer->messages);
	shared_store_u64(&line->bytes, peer->bytes);
}

/* Tell the user of the peers that failed, from a place where it may complete operations. */
static void report_failures(struct path *path)
{
	for (uint32_t slot = 0; path->failures > 0 && slot < path->region->members; slot++) {
		struct peer *peer = path->peers[slot];
		if (peer == NULL || peer->state != PEER_FAILED || peer->reported)
			continue;
		peer->reported = true;
		stop_receiving(path, peer);
		publish_counts_of(path, peer); /* the last that people will see of it */
		peer->sending = false;
		chunk_recall(&path->chunks, &peer->account);
		path->user->failed(path->context, peer);
	}
	path->failures = 0;
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
	} else {
		/* Somebody else took the slot: what concerned the former occupant ends first. */
		path_fail(path, peer, -ECONNRESET, "it is gone, and its slot was taken by another");
		report_failures(path);
		path->user->replaced(path->context, peer);
	}
	reset_peer(path, peer, slot, epoch, nonce);
	return peer;
}

/* Room for a ring of `count` slots, that leaves a smallest one for everybody without. */
static bool ring_fits(const struct path *path, uint32_t count)
{
	uint64_t others = path->region->members - path->rings - 1;
	uint64_t needed =
		count * sizeof(struct ring_slot) + others * RING_SLOTS_MIN * sizeof(struct ring_slot);

	return needed <= path->ring_end - path->ring_next;
}

static void publish_arena_used(const struct path *path)
{
	uint32_t rings = path->ring_next - (uint32_t)SECTION_ARENA_OFFSET(path->region->members);
	uint32_t used = rings;

	for (uint32_t i = 0; i < CHUNK_CLASSES; i++) {
		const struct chunk_class *class = &path->chunks.classes[i];
		used += (class->count - class->free_count) * class->stride;
	}
	shared_store_u32(&section_header(path->region, path->member->slot)->arena_used, used);
}

int path_connect(struct path *path, struct peer *peer)
{
	struct region *region = path->region;
	uint32_t self = path->member->slot;
	struct connection_line *line = section_connection(region, self, peer->slot);
	uint32_t slots = RING_SLOTS_USUAL;
	uint32_t id = 0;

	if (path->ring_of[peer->slot] == 0) {
		while (slots > RING_SLOTS_MIN && !ring_fits(path, slots))
			slots /= 2;
		if (path->ring_end - path->ring_next < slots * sizeof(struct ring_slot))
			return -ENOMEM;
		path->ring_of[peer->slot] = path->ring_next;
		path->ring_slots_of[peer->slot] = slots;
		path->ring_next += slots * (uint32_t)sizeof(struct ring_slot);
		path->rings++;
		publish_arena_used(path);
	}
	slots = path->ring_slots_of[peer->slot];
	if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id))
		id = (uint32_t)monotonic_now();
	id |= CONNECTION_OPEN; /* and so never zero */

	/* Withdraw what a former occupant of the slot was offered, then offer the new. */
	shared_store_u32(&line->id, 0);
	shared_fence_stores();
	shared_bytes *memory =
		section_view(region, self, path->ring_of[peer->slot], slots * sizeof(struct ring_slot));
	shared_clear(memory, slots * sizeof(struct ring_slot));
	ring_out_open(&peer->out, (struct ring_slot *)(void *)memory, slots, peer->account.credit, id);
	peer->account.connection = id;
	shared_store_u32(&line->receiver_epoch, peer->epoch);
	shared_store_u64(&line->ring, path->ring_of[peer->slot]);
	shared_store_u32(&line->slots, slots);
	/* Pairs with the acquire load in accept_connection(). */
	shared_release_u32(&line->id, id);
	path_ring(peer);
	peer->sending = true;
	return 0;
}

static void warm(struct path *path, struct peer *peer)
{
	peer->idle_polls = 0;
	if (peer->hot)
		return;
	peer->hot = true;
	path->hot[path->hot_count++] = peer;
	publish_active(path, peer->slot, true);
}

/* Somebody rang. Take its ring if it is offered to us and we did not already. */
static void accept_connection(struct path *path, uint32_t slot)
{
	struct region *region = path->region;
	const struct connection_line *line = section_connection(region, slot, path->member->slot);
	uint32_t epoch = 0;
	uint64_t nonce = 0;

	if (!member_identify(region, slot, &epoch, &nonce))
		return;
	/* Pairs with the release store in path_connect(). */
	uint32_t id = shared_acquire_u32(&line->id);
	uint32_t receiver_epoch = shared_load_u32(&line->receiver_epoch);
	uint64_t offset = shared_load_u64(&line->ring);
	uint32_t slots = shared_load_u32(&line->slots);
	/* It changes just now: its writer rings when it is done. */
	shared_fence_loads();
	if (shared_load_u32(&line->id) != id || !member_is_intact(region, slot, epoch))
		return;
	struct peer *peer = path_meet(path, slot, epoch, nonce);
	struct credit_line *credit = section_credit(region, path->member->slot, slot);

	if (id == 0 || receiver_epoch != path->member->epoch || peer == NULL)
		return;
	if (peer->state == PEER_FAILED) {
		ring_refuse(credit, id);
		return;
	}
	if (peer->receiving && peer->in.connection == id) {
		warm(path, peer);
		return;
	}
	if (peer->receiving || (id & CONNECTION_OPEN) == 0 || slots < RING_SLOTS_MIN ||
	    slots > RING_SLOTS_MAX || (slots & (slots - 1)) != 0 || offset % REGION_LINE != 0 ||
	    section_view(region, slot, offset, slots * sizeof(struct ring_slot)) == NULL) {
		path_fail(path, peer, -EPROTO, "it offered a ring that cannot be");
		return;
	}
	const shared_bytes *memory = section_view(region, slot, offset, slots * sizeof(struct ring_slot));
	ring_in_open(&peer->in, (const struct ring_slot *)(const void *)memory, slots, credit, id);
	peer->returns = (struct chunk_returns){.credit = credit};
	for (uint32_t word = 0; word < CHUNK_WORDS; word++)
		shared_store_u64(&credit->returned[word], 0);
	/* Release: the sender that sees its id sees the cleared bits too. */
	ring_publish(&peer->in);
	peer->receiving = true;
	warm(path, peer);
}

static void read_doorbells(struct path *path)
{
	uint32_t self = path->member->slot;

	for (uint32_t slot = 0; slot < path->region->members; slot++) {
		uint32_t rung = shared_acquire_u32(section_doorbell(path->region, self, slot));
		if (rung == path->doorbells_seen[slot])
			continue;
		path->doorbells_seen[slot] = rung;
		accept_connection(path, slot);
	}
}

/* Nothing comes: tell the senders of the slots that were read since the last batch. */
static void publish_idle_credit(struct path *path)
{
	for (uint32_t i = 0; i < path->hot_count; i++)
		if (path->hot[i]->in.published != path->hot[i]->in.position)
			ring_publish(&path->hot[i]->in);
}

static void cool_idle_rings(struct path *path)
{
	for (uint32_t i = path->hot_count; i-- > 0 && path->hot_count > HOT_RINGS_KEPT;)
		if (path->hot[i]->idle_polls > IDLE_POLLS_COLD)
			cool(path, i);
}

/* A cold ring may have a message whose doorbell was not rung: see section_header.active. */
static void sweep_cold_rings(struct path *path)
{
	uint64_t control = 0;

	for (uint32_t slot = 0; slot < path->region->members; slot++) {
		struct peer *peer = path->peers[slot];
		if (peer != NULL && peer->receiving && !peer->hot && ring_peek(&peer->in, &control))
			warm(path, peer);
	}
}

/* What we write now would be another's, or nobody's. */
static void evict(struct path *path, const char *reason)
{
	path->evicted = true;
	for (uint32_t slot = 0; slot < path->region->members; slot++)
		if (path->peers[slot] != NULL)
			path_fail(path, path->peers[slot], -ECONNABORTED, reason);
}

/* What becomes of the heap is the heap's own affair: see region/heap.c. */
void path_lose(struct path *path)
{
	member_lose(path->member);
	evict(path, "this process was forked, and the endpoint is its parent's");
}

/*
 * We were paused for so long that another has our slot: what we write now would be its. Or
 * the region is gone altogether.
 */
static void check_ourselves(struct path *path)
{
	if (path->evicted || member_is_joined(path->member))
		return;
	evict(path, atomic_load_explicit(&path->region->cut, memory_order_relaxed)
			    ? "the region's file was cut short"
			    : "this endpoint was taken for dead, and another has its slot");
	if (path->heap != NULL)
		heap_stop(path->heap);
}

void path_check_peers(struct path *path)
{
	uint64_t now = monotonic_now();

	check_ourselves(path);
	for (uint32_t slot = 0; slot < path->region->members; slot++) {
		struct peer *peer = path->peers[slot];
		uint64_t control = 0;
		if (peer == NULL || peer->state == PEER_FAILED)
			continue;
		enum member_state state =
			member_observe(path->member, slot, peer->epoch, &peer->pulse, now, path->timeout);
		if (state == MEMBER_ALIVE) {
			(void)path_refresh(path, peer, 0);
			continue;
		}
		/* What it sent before it went is still there: read that first. */
		if (peer->receiving && ring_peek(&peer->in, &control) && path_intact(path, peer)) {
			warm(path, peer);
			continue;
		}
		if (state == MEMBER_LEFT)
			path_fail(path, peer, -ECONNABORTED, "it left the region");
		else
			path_fail(path, peer, -ECONNRESET, "it died");
	}
}

static void check_now_and_then(struct path *path)
{
	uint64_t now = monotonic_now();

	if (now < path->next_check)
		return;
	path->next_check = now + LIVENESS_INTERVAL;
	path_check_peers(path);
	path_publish_counts(path);
}

void path_attend(struct path *path, bool idle)
{
	read_doorbells(path);
	if (idle)
		publish_idle_credit(path);
	if (path->hot_count > HOT_RINGS_KEPT)
		cool_idle_rings(path);
	if (path->polls % POLLS_PER_SWEEP == 0)
		sweep_cold_rings(path);
	path_wake_for_room(path);
	/* A busy endpoint has less need to ask who is still there, but must ask. */
	if (path->polls % (idle ? POLLS_PER_CHECK_IDLE : POLLS_PER_CHECK_BUSY) == 0)
		check_now_and_then(path);
	if (path->failures != 0)
		report_failures(path);
}

void path_look(struct path *path)
{
	read_doorbells(path);
	publish_idle_credit(path);
	sweep_cold_rings(path);
	path_wake_for_room(path);
	check_now_and_then(path);
	if (path->failures != 0)
		report_failures(path);
}

bool path_refresh(struct path *path, struct peer *peer, uint32_t count)
{
	if (!peer->sending)
		return false;
	switch (ring_credit(&peer->out)) {
	case RING_CREDIT_VIOLATION:
		path_fail(path, peer, -EPROTO, "it gave credit that cannot be");
		return false;
	case RING_CREDIT_CLOSED:
		path_fail(path, peer, -ECONNABORTED, "it took us for dead or for hostile, and reads no more");
		return false;
	default:
		if (ring_has_room(&peer->out, count))
			return true;
		path->short_of_room = true;
		return false;
	}
}

uint32_t path_chunk_slow(struct path *path, struct peer *peer, uint32_t length)
{
	for (uint32_t slot = 0; slot < path->region->members; slot++) {
		struct peer *other = path->peers[slot];
		if (other != NULL && other->account.lent > 0 && other->state == PEER_PRESENT &&
		    chunk_collect(&path->chunks, &other->account) < 0)
			path_fail(path, other, -EPROTO, "it returned a chunk that it does not have");
	}
	uint32_t chunk = chunk_take(&path->chunks, &peer->account, length);
	path->short_of_room = path->short_of_room || chunk == CHUNK_NONE;
	return chunk;
}

bool path_drained(struct path *path)
{
	for (uint32_t slot = 0; slot < path->region->members; slot++) {
		struct peer *peer = path->peers[slot];
		if (peer == NULL || !peer->sending || peer->state == PEER_FAILED ||
		    slot == path->member->slot)
			continue;
		if (ring_credit(&peer->out) != RING_CREDIT_OK)
			continue;
		if (peer->out.limit - peer->out.position != peer->out.mask + 1)
			return false;
	}
	return true;
}

void path_publish_counts(struct path *path)
{
	if (path->evicted)
		return;
	for (uint32_t slot = 0; slot < path->region->members; slot++)
		if (path->peers[slot] != NULL)
			publish_counts_of(path, path->peers[slot]);
	publish_arena_used(path);
}
