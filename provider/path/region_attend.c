/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * region_attend.c - what a poll does now and then beside looking at the hot rings: rings that go
 * cold or are, doorbells, credit and chunks that were given back.
 */
#include "path/move.h"
#include "path/network.h"
#include "path/region_path.h"
#include "region/doorbell.h"

/* Up to so many rings are all polled at every poll: a poll of an idle ring is an L1 hit. */
#define HOT_RINGS_KEPT 8U
/* Beyond that, a ring that was idle for so many polls is left to its doorbell. */
#define IDLE_POLLS_COLD 4096U
/* A cold ring is looked at once in so many polls anyway, since a doorbell can be lost. */
#define POLLS_PER_SWEEP 4096U

/* How often the clock is read to see whether it is time to look for dead peers. */
#define POLLS_PER_CHECK_IDLE 1024U
#define POLLS_PER_CHECK_BUSY 65536U

/*
 * Polls so far apart are sparse: then all of this goes by the clock. A poll takes 0.02 us alone and 0.4 with
 * a look at a core provider. Where a network is in use that is found out in 64 polls, and else in so many:
 * with the clock read for each 64, messages through the region took 3 % longer beside 32 idle peers beyond
 * it (1.02 to 1.07).
 */
#define POLLS_PER_RATE 256U
#define SPARSE_NANOSECONDS 2000U
/*
 * To attend to the regions takes 10 to 30 ns a member, 15 us for 511. Were it done at each sparse poll, polls
 * would be sparse for that alone.
 */
#define ATTEND_NANOSECONDS_A_MEMBER 128U

static void publish_active(const struct peer *peer)
{
	struct port *port = peer->port;
	uint32_t word = peer->slot / 64;
	uint64_t bit = UINT64_C(1) << peer->slot % 64;

	port->active[word] = peer->hot_place != 0 ? port->active[word] | bit : port->active[word] & ~bit;
	/* While one sleeps, every sender must ring. */
	if (port->path->sleepers == 0 && path_keeps_place(port))
		shared_store_u64(&section_header(port->region, port->member->slot)->active[word],
				 port->active[word]);
}

void path_warm(struct path *path, struct peer *peer)
{
	bool was_hot = peer->hot_place != 0;

	if (!was_hot) {
		path->hot[path->hot_count++].peer = peer;
		peer->hot_place = path->hot_count;
	}
	path_note_ring(path, peer);
	if (!was_hot)
		publish_active(peer);
}

static void cool(struct path *path, struct peer *peer)
{
	struct hot_ring *place = &path->hot[peer->hot_place - 1];

	/* The last one takes its place. If it is the last itself, it is nowhere all the same. */
	*place = path->hot[--path->hot_count];
	place->peer->hot_place = peer->hot_place;
	peer->hot_place = 0;
	publish_active(peer);
}

void path_stop_reading(struct path *path, struct peer *peer)
{
	if (peer->hot_place != 0)
		cool(path, peer);
	peer->receiving = false;
}

void path_stop_receiving(struct path *path, struct peer *peer)
{
	/* The sender may live, and wait for us to read on. */
	if (peer->receiving && path_keeps_place(peer->port))
		ring_refuse(peer->in.credit, peer->in.connection);
	path_stop_reading(path, peer);
}

/* Nothing comes: tell the senders of the slots that were read since the last batch. */
static void publish_idle_credit(struct path *path)
{
	for (uint32_t i = 0; i < path->hot_count; i++)
		if (path->hot[i].peer->in.published != path->hot[i].peer->in.position)
			ring_publish(&path->hot[i].peer->in);
}

static void cool_idle_rings(struct path *path)
{
	for (uint32_t i = path->hot_count; i-- > 0 && path->hot_count > HOT_RINGS_KEPT;)
		if (path->polls - path->hot[i].active > IDLE_POLLS_COLD)
			cool(path, path->hot[i].peer);
}

/* A cold ring may have a message whose doorbell was not rung: see section_header.active. */
static void sweep_cold_rings(struct path *path)
{
	uint64_t control = 0;

	for (uint32_t source = 0; source < path->peer_end; source++) {
		struct peer *peer = path_neighbour(path, source);
		if (peer != NULL && peer->receiving && peer->hot_place == 0 && ring_peek(&peer->in, &control))
			path_warm(path, peer);
	}
}

bool path_refresh(struct path *path, struct peer *peer, uint32_t count)
{
	if (!peer->sending || !path_may_write(peer) || peer->moving || path_is_renewing(peer) ||
	    network_is_hushed(peer))
		return false;
	switch (ring_credit(&peer->out)) {
	case RING_CREDIT_VIOLATION:
		path_fail(path, peer, -EPROTO, "it gave credit that cannot be");
		return false;
	case RING_CREDIT_CLOSED:
		path_break(path, peer, -ECONNABORTED,
			   "it took us for dead or for hostile, and reads no more");
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
	for (uint32_t source = 0; source < path->peer_end; source++) {
		struct peer *other = path->peers[source];
		if (other != NULL && other->account.lent > 0 && other->state != PEER_FAILED &&
		    chunk_collect(other->pool, &other->account) < 0)
			path_fail(path, other, -EPROTO, "it returned a chunk that it does not have");
	}
	uint32_t chunk = chunk_take(peer->pool, &peer->account, length);
	path->short_of_room = path->short_of_room || chunk == CHUNK_NONE;
	return chunk;
}

bool path_drained(struct path *path)
{
	for (uint32_t source = 0; source < path->peer_end; source++) {
		struct peer *peer = path_neighbour(path, source);
		if (peer == NULL || !peer->sending || peer->state == PEER_FAILED || peer_is_self(peer) ||
		    path_is_renewing(peer))
			continue;
		if (peer->moving)
			return false;
		if (peer->network != NULL || ring_credit(&peer->out) != RING_CREDIT_OK)
			continue;
		if (peer->out.limit - peer->out.position != peer->out.mask + 1)
			return false;
	}
	return network_drained(path);
}

static void check_now_and_then(struct path *path)
{
	uint64_t now = monotonic_now();

	if (now < path->next_check)
		return;
	path->next_check = now + LIVENESS_INTERVAL;
	if (path->sparse)
		sweep_cold_rings(path);
	path_check_peers(path);
	path_begin_moves(path);
	path_publish_counts(path);
}

static uint32_t read_all_doorbells(struct path *path)
{
	uint32_t heard = 0;

	for (uint32_t i = 0; i < path->port_count; i++)
		heard += path_read_doorbells(&path->ports[i]);
	return heard;
}

/*
 * Returns how many rang. The poll looked at their rings before it heard them, and who rings one that
 * is about to sleep does so once: so it must look again, and not find that there was nothing.
 */
static uint32_t attend_regions(struct path *path, bool idle)
{
	/* What failed with the slot is told first: until then its rings are among those looked at. */
	if (!path_check_places(path))
		return 0;
	/* One region's at a time: with several, nobody is heard less than a few hundred polls later. */
	uint32_t heard = path_read_doorbells(&path->ports[path->next_port]);

	if (++path->next_port >= path->port_count)
		path->next_port = 0;

	if (idle)
		publish_idle_credit(path);
	if (path->hot_count > HOT_RINGS_KEPT)
		cool_idle_rings(path);
	if (path->polls % POLLS_PER_SWEEP == 0)
		sweep_cold_rings(path);
	path_wake_for_room(path);
	/* A busy endpoint has less need to ask who is still there, but must ask. */
	if (path->sparse || path->polls % (idle ? POLLS_PER_CHECK_IDLE : POLLS_PER_CHECK_BUSY) == 0)
		check_now_and_then(path);
	return heard;
}

/*
 * Who does other work between two polls, or sleeps, or shares its processor, would hear at the 64th or
 * thousands later what is not in a hot ring: so the clock is read in each, as long as they are far apart.
 */
static void note_rate(struct path *path)
{
	uint64_t now = monotonic_now();
	uint64_t polls = path->polls - path->rated_polls;
	bool sparse = now - path->rated > polls * SPARSE_NANOSECONDS;

	path->rated = now;
	path->rated_polls = path->polls;
	if (sparse == path->sparse)
		return;
	path->sparse = sparse;
	path->attention += sparse ? 1U : -1U;
}

/* Of sparse polls: is it long enough since regions were attended to? For 15 members and fewer, always. */
static bool is_due(struct path *path)
{
	uint64_t now = monotonic_now();

	if (now < path->next_attend)
		return false;
	path->next_attend = now + (uint64_t)path->members * ATTEND_NANOSECONDS_A_MEMBER;
	return true;
}

uint32_t path_attend(struct path *path, bool idle)
{
	bool seldom = (path->polls & 63) == 0;
	uint32_t handled = 0;

	if (seldom && (path->attention != 0 || path->polls % POLLS_PER_RATE == 0))
		note_rate(path);
	if (path->network != NULL)
		handled = network_attend(path, idle);
	if (path->moves != 0)
		path_go_on_moving(path);
	if (seldom || (path->sparse && is_due(path)))
		handled += attend_regions(path, idle);
	if (path->failures != 0)
		path_report_failures(path);
	return handled;
}

uint32_t path_look(struct path *path)
{
	uint32_t handled = path->network != NULL ? network_look(path) : 0;

	if (!path_check_places(path))
		path_report_failures(path);
	/* What interrupts us from here on may be of something that this look does not find. */
	for (uint32_t i = 0; i < path->port_count; i++)
		path->ports[i].interrupts_seen = doorbell_count(path->ports[i].region->doorbell);
	(void)read_all_doorbells(path);
	publish_idle_credit(path);
	sweep_cold_rings(path);
	path_wake_for_room(path);
	check_now_and_then(path);
	if (path->moves != 0)
		path_go_on_moving(path);
	if (path->failures != 0)
		path_report_failures(path);
	return handled;
}
