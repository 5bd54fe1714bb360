/* SPDX-License-Identifier: BSD-3-Clause */
/* region_path.c - the path through the region: joining and leaving, and peers that come, fail and go. */
#include "path/region_path.h"

#include "path/move.h"
#include "path/network.h"
#include "path/part.h"
#include "path/rejoin.h"
#include "path/renew.h"
#include "path/states.h"

#include <stdlib.h>
#include <sys/mman.h>

/* What SECTION_LEAST leaves for chunks, but for a page. */
#define CHUNKS_LEAST (128U * 1024U)

void path_divide_arena(struct port *port)
{
	struct region *region = port->region;
	uint64_t arena = section_arena_end(region) - SECTION_ARENA_OFFSET(region->members);
	/* A ring of the smallest kind for everybody, or an eighth if that is more. */
	uint64_t needed = (uint64_t)region->members * RING_SLOTS_MIN * sizeof(struct ring_slot);
	uint64_t rings = needed < arena / 8 ? arena / 8 : needed;
	/*
	 * Without this the first rings of all members lie at the same offset of a page, and their slots in a
	 * few sets of the receiver's cache: a load of each of 511 slots took 3.3 ns, with it 0.9. Each
	 * member's rings begin at another line of a page, where there is room for that.
	 */
	uint64_t colour = port->member->slot % (REGION_PAGE / REGION_LINE) * REGION_LINE;

	/* What is left for chunks is 128 KiB at least, but for that page: see SECTION_LEAST. */
	rings = REGION_ROUND_UP(rings, REGION_PAGE);
	if (rings - needed < REGION_PAGE && arena - rings >= CHUNKS_LEAST + REGION_PAGE)
		rings += REGION_PAGE;
	port->ring_begin =
		(uint32_t)(SECTION_ARENA_OFFSET(region->members) + (colour <= rings - needed ? colour : 0));
	port->ring_next = port->ring_begin;
	port->ring_end = (uint32_t)(SECTION_ARENA_OFFSET(region->members) + rings);
	chunk_pool_open(&port->chunks, region, port->member->slot, port->ring_end, arena - rings);
}

/* Of all that there may ever be. */
static size_t peers_bytes(void)
{
	return PATH_PEERS_MOST * sizeof(struct peer *);
}

void path_strip_port(struct port *port)
{
	free(port->doorbells_seen);
	free(port->ring_of);
	free(port->ring_slots_of);
	free(port->guests);
}

int path_furnish_port(struct port *port)
{
	struct path *path = port->path;
	uint32_t members = port->region->members;
	struct hot_ring *hot = realloc(path->hot, (path->hot_room + members) * sizeof(*hot));

	if (hot != NULL)
		path->hot = hot;
	port->doorbells_seen = calloc(members, sizeof(*port->doorbells_seen));
	port->ring_of = calloc(members, sizeof(*port->ring_of));
	port->ring_slots_of = calloc(members, sizeof(*port->ring_slots_of));
	if (hot == NULL || port->doorbells_seen == NULL || port->ring_of == NULL ||
	    port->ring_slots_of == NULL) {
		path_strip_port(port);
		return -ENOMEM;
	}
	path->hot_room += members;
	return 0;
}

/* Take part in one more region. */
static int open_port(struct path *path, struct region *region, uint32_t endpoint, struct region_error *error)
{
	struct port *port = &path->ports[path->port_count];

	*port = (struct port){.path = path, .region = region, .base = path->members, .endpoint = endpoint};
	if (path_furnish_port(port) != 0)
		return region_fail(error, -ENOMEM, "no memory is left for an endpoint: free some");
	int result = member_join_as(path->port_count > 0 ? path->ports[0].member : NULL, region, endpoint,
				    path->timeout, &port->member, error);
	if (result != 0) {
		path_strip_port(port);
		return result;
	}
	path->port_count++;
	path->members += region->members;
	path->peer_end = path->members;
	path_divide_arena(port);
	return 0;
}

int path_open(struct path **opened, struct region *region, uint32_t endpoint, uint64_t timeout,
	      const struct path_user *user, void *context, struct region_error *error)
{
	struct path *path = calloc(1, sizeof(*path));

	if (path == NULL)
		return region_fail(error, -ENOMEM, "no memory is left for an endpoint: free some");
	path->user = user;
	path->context = context;
	path->timeout = timeout;
	path->rated = monotonic_now();
	/* Room for more peers than there are is address space alone. */
	path->peers = mmap(NULL, peers_bytes(), PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (path->peers == MAP_FAILED) {
		free(path);
		return region_fail(error, -ENOMEM, "no memory is left for an endpoint: free some");
	}
	int result = open_port(path, region, endpoint, error);
	if (result == 0)
		result = heap_open(&path->heap, path->ports[0].member, error);
	if (result != 0) {
		path_close(path);
		return result;
	}
	path_take_first_rings(&path->ports[0]);
	*opened = path;
	return 0;
}

int path_join(struct path *path, struct region *region, uint32_t endpoint, struct region_error *error)
{
	int result = path->port_count < PATH_PORTS_MOST
			     ? open_port(path, region, endpoint, error)
			     : region_fail(error, -E2BIG, "an endpoint can be in %u regions and no more",
					   PATH_PORTS_MOST);

	if (result == 0)
		path_take_first_rings(&path->ports[path->port_count - 1]);
	return result;
}

void path_close(struct path *path)
{
	path_publish_counts(path);
	for (uint32_t i = 0; i < path->port_count; i++) {
		/* What the application has there keeps the slot from being taken. */
		if (i == 0 && path->heap != NULL)
			heap_leave(path->heap, path->ports[i].member);
		else
			member_leave(path->ports[i].member);
	}
	network_close(path);
	/* One of a region that is in the network too has a place there besides: it comes first. */
	for (uint32_t source = path->peer_end; source-- > 0;)
		if (path->peers[source] != NULL && path->peers[source]->source == source)
			free(path->peers[source]);
	(void)munmap(path->peers, peers_bytes());
	for (uint32_t i = 0; i < path->port_count; i++) {
		path_strip_port(&path->ports[i]);
		/* What we came back to nobody else of our process has. */
		if (path->ports[i].base == PATH_NO_BASE)
			region_detach(path->ports[i].region);
	}
	free(path->hot);
	free(path);
}

void path_aim_at_region(struct peer *peer)
{
	struct port *port = peer->port;
	uint32_t self = port->member->slot;

	peer->pool = &port->chunks;
	peer->active_word = &section_header(port->region, peer->slot)->active[self / 64];
	peer->active_bit = UINT64_C(1) << self % 64;
	peer->account = (struct chunk_account){
		.credit = section_credit(port->region, peer->slot, self),
	};
}

void path_expect_ring(struct peer *peer)
{
	const struct region *region = peer->port->region;

	peer->section = (shared_bytes *)region_section(region, peer->slot);
	peer->section_bytes = region->section_bytes;
	peer->claim = &region_slot(region, peer->slot)->claim;
}

void path_place_peer(struct port *port, struct peer *peer, uint32_t slot, uint32_t epoch)
{
	struct region *region = port->region;

	peer->port = port;
	peer->own_claim = &region_slot(region, port->member->slot)->claim;
	peer->own_tenure = port->member->epoch;
	peer->slot = slot;
	peer->tenure = epoch;
	peer->pulse = (struct pulse){0};
	peer->gone = 0;
	peer->woken = 0;
	peer->doorbell = section_doorbell(region, slot, port->member->slot);
	peer->doorbell_count = shared_load_u32(peer->doorbell); /* our own word, from a former life */
	peer->sleeping_word = &section_header(region, slot)->sleeping;
}

void path_leave_place(struct peer *peer)
{
	static shared_u64 nobody;

	peer->own_claim = &nobody;
	peer->own_tenure = 0;
}

struct peer *path_peer_in(const struct port *port, uint32_t slot, uint32_t epoch)
{
	struct peer *guest = port->guests != NULL ? port->guests[slot] : NULL;
	struct peer *peer = port->base != PATH_NO_BASE ? port->path->peers[port->base + slot] : NULL;

	if (guest != NULL && guest->tenure == epoch)
		return guest;
	return peer != NULL && peer->port == port && peer->tenure == epoch ? peer : NULL;
}

void path_reset_peer(struct port *port, struct peer *peer, uint32_t slot, uint32_t epoch, uint64_t nonce)
{
	struct region *region = port->region;

	memset(peer, 0, sizeof(*peer));
	peer->source = port->base + slot;
	peer->epoch = epoch;
	peer->nonce = nonce;
	peer->state = PEER_PRESENT;
	path_place_peer(port, peer, slot, epoch);
	peer->mapped = path_may_map(peer);
	path_aim_at_region(peer);
	path_expect_ring(peer);
	/* Now, since the region may be of no use when it is needed. */
	peer->said = member_identity_said(region, slot, epoch, nonce);
	if (!member_core(region, slot, epoch, &peer->where))
		peer->where = (struct member_core){0};
}

void path_fail(struct path *path, struct peer *peer, int failure, const char *reason)
{
	if (peer->state == PEER_FAILED)
		return;
	peer_set_state(peer, PEER_FAILED);
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

/* In the first of our regions: who looks finds out by the nonce whom it means. */
static void publish_counts_beyond(const struct path *path, const struct peer *peer)
{
	const struct port *home = path->ports[0].next != NULL ? path->ports[0].next : &path->ports[0];
	uint32_t place = network_place_of(peer);

	if (!path_keeps_place(home) || place >= REGION_NETWORK_LINES)
		return;
	struct network_line *line = section_network(home->region, home->member->slot, place);
	shared_store_u64(&line->nonce, peer->nonce);
	shared_store_u64(&line->messages, peer->messages);
	shared_store_u64(&line->bytes, peer->bytes);
}

static void publish_counts_of(const struct path *path, const struct peer *peer)
{
	const struct port *port = peer->port;

	if (!peer->sending)
		return;
	if (port == NULL) {
		publish_counts_beyond(path, peer);
		return;
	}
	if (!path_keeps_place(port))
		return;
	struct connection_line *line = section_connection(port->region, port->member->slot, peer->slot);
	shared_store_u64(&line->messages, peer->messages);
	shared_store_u64(&line->bytes, peer->bytes);
}

void path_report_failures(struct path *path)
{
	for (uint32_t source = 0; path->failures > 0 && source < path->peer_end; source++) {
		struct peer *peer = path->peers[source];
		if (peer == NULL || peer->state != PEER_FAILED || peer->reported)
			continue;
		bool renews = path_may_renew(path, peer);
		peer->reported = true;
		path->failures--;
		path->attention--;
		path_end_move(path, peer);
		path_tell_end(peer);
		path_stop_receiving(path, peer);
		publish_counts_of(path, peer); /* the last that people will see of it */
		peer->sending = false;
		if (peer->beyond != NULL)
			network_stop(peer, renews);
		if (peer->network == NULL || network_is_quiet(peer))
			chunk_recall(peer->pool, &peer->account);
		/* Another may fail meanwhile: it is told at the next poll, if its number is behind us. */
		bool told = path->user->failed(path->context, peer);
		if (renews)
			path_renew(path, peer, told);
	}
}

struct peer *path_new_peer(const struct path *path)
{
	size_t bytes = path->user->peer_bytes;
	struct peer *peer = aligned_alloc(REGION_LINE, bytes);

	if (peer == NULL)
		return NULL;
	memset(peer, 0, bytes);
	path_leave_place(peer);
	return peer;
}

struct peer *path_meet(struct path *path, uint32_t source, uint32_t epoch, uint64_t nonce)
{
	struct port *port = path_port(path, source);
	struct peer *peer = NULL;

	if (port == NULL || port->evicted ||
	    !member_confirm(port->region, source - port->base, epoch, nonce) ||
	    member_is_guest(port->region, source - port->base))
		return NULL;
	peer = path->peers[source];
	if (peer != NULL && peer->epoch == epoch)
		return peer;
	/* Its number is that of one who left the region, and lives on elsewhere. */
	if (peer != NULL && (peer->port != port || peer->guest) && peer->state != PEER_FAILED)
		return path_meet_guest(port, source - port->base, epoch, nonce);
	if (peer == NULL) {
		/* It has left, and said hello from where it is: it has another number. */
		if (member_departed(port->region, source - port->base, epoch) && network_has_met(path, nonce))
			return NULL;
		peer = path_new_peer(path);
		if (peer == NULL)
			return NULL;
		path->peers[source] = peer;
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
	path_reset_peer(port, peer, source - port->base, epoch, nonce);
	if (member_departed(port->region, peer->slot, epoch) && !path_part_at_once(path, peer))
		path_fail(path, peer, -ECONNABORTED, "it left the region");
	return peer;
}

/* What becomes of the heap is the heap's own affair: see region/heap.c. */
void path_lose(struct path *path)
{
	const char *reason = "this process was forked, and the endpoint is its parent's";

	/* First: the core is the parent's, and what follows would ask it for messages of strangers. */
	network_lose(path, reason);
	for (uint32_t i = 0; i < path->port_count; i++) {
		struct port *port = &path->ports[i];
		member_lose(port->member);
		if (port->base == PATH_NO_BASE)
			region_lose(port->region);
		path_evict(port, reason);
	}
}

void path_publish_arena_used(const struct port *port)
{
	uint32_t used = port->ring_next - port->ring_begin;

	for (uint32_t i = 0; i < CHUNK_CLASSES; i++) {
		const struct chunk_class *class = &port->chunks.classes[i];
		used += (class->count - class->free_count) * class->stride;
	}
	shared_store_u32(&section_header(port->region, port->member->slot)->arena_used, used);
}

void path_publish_counts(struct path *path)
{
	uint32_t end = path->members + REGION_NETWORK_LINES;

	for (uint32_t source = 0; source < path->peer_end && source < end; source++)
		if (path->peers[source] != NULL)
			publish_counts_of(path, path->peers[source]);
	for (uint32_t i = 0; i < path->port_count; i++)
		if (path_keeps_place(&path->ports[i]))
			path_publish_arena_used(&path->ports[i]);
}
