/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * region_progress.c - the slow part of a poll: cooling and checking idle rings, doorbells, and
 * returned credit and chunks.
 */
#include "region/doorbell.h"
#include "transport/network.h"
#include "transport/region_transport.h"
#include "transport/switch.h"

/*
 * Up to this many rings are polled at every poll, busy or not: a poll of an idle ring is an L1 hit.
 */
#define HOT_RINGS_KEPT 8U
/* If there are more, a ring that was idle for this many polls is left to its doorbell. */
#define IDLE_POLLS_COLD 4096U
/* All cold rings are still polled once in this many polls, because a doorbell can be lost. */
#define POLLS_PER_SWEEP 4096U

/* The number of polls between two looks at the clock for the check of peers. */
#define POLLS_PER_CHECK_IDLE 1024U
#define POLLS_PER_CHECK_BUSY 65536U

/*
 * Polls that are further apart than SPARSE_NANOSECONDS are sparse: then the slow part goes by the
 * clock. A poll takes 0.02 us, or 0.4 us if it also polls a core provider. With a network in use,
 * the rate is checked every 64 polls, otherwise every POLLS_PER_RATE polls: with a clock read every
 * 64 polls, messages through the region took 3 % longer beside 32 idle network peers (1.02 to
 * 1.07).
 */
#define POLLS_PER_RATE 256U
#define SPARSE_NANOSECONDS 2000U
/*
 * The slow part for the regions takes 10 to 30 ns for each member, 15 us for 511. If each sparse
 * poll executed it, polls would be sparse because of it.
 */
#define ATTEND_NANOSECONDS_A_MEMBER 128U

static void publish_active(const struct peer *peer)
{
	struct attachment *attachment = peer->attachment;
	uint32_t word = peer->slot / 64;
	uint64_t bit = UINT64_C(1) << peer->slot % 64;

	attachment->active[word] =
		peer->hot_index != 0 ? attachment->active[word] | bit : attachment->active[word] & ~bit;
	/* While a thread sleeps, every sender must ring. */
	if (attachment->transport->sleepers == 0 && attachment_holds_slot(attachment))
		shared_store_u64(&section_header(attachment->region, attachment->member->slot)->active[word],
				 attachment->active[word]);
}

void transport_warm(struct transport *transport, struct peer *peer)
{
	bool was_hot = peer->hot_index != 0;

	if (!was_hot) {
		transport->hot[transport->hot_count++].peer = peer;
		peer->hot_index = transport->hot_count;
	}
	transport_note_ring(transport, peer);
	if (!was_hot)
		publish_active(peer);
}

static void cool(struct transport *transport, struct peer *peer)
{
	struct hot_ring *entry = &transport->hot[peer->hot_index - 1];

	/* Move the last entry here. The code also works if this is the last entry. */
	*entry = transport->hot[--transport->hot_count];
	entry->peer->hot_index = peer->hot_index;
	peer->hot_index = 0;
	publish_active(peer);
}

void transport_stop_reading(struct transport *transport, struct peer *peer)
{
	if (peer->hot_index != 0)
		cool(transport, peer);
	peer->receiving = false;
}

void transport_stop_receiving(struct transport *transport, struct peer *peer)
{
	/* The sender may live, and wait for us to read. */
	if (peer->receiving && attachment_holds_slot(peer->attachment))
		ring_refuse(peer->in.credit, peer->in.connection);
	transport_stop_reading(transport, peer);
}

/* No messages arrived: publish the slots that were read since the last batch to their senders. */
static void publish_idle_credit(struct transport *transport)
{
	for (uint32_t i = 0; i < transport->hot_count; i++)
		if (transport->hot[i].peer->in.published != transport->hot[i].peer->in.position)
			ring_publish(&transport->hot[i].peer->in);
}

static void cool_idle_rings(struct transport *transport)
{
	for (uint32_t i = transport->hot_count; i-- > 0 && transport->hot_count > HOT_RINGS_KEPT;)
		if (transport->polls - transport->hot[i].active > IDLE_POLLS_COLD)
			cool(transport, transport->hot[i].peer);
}

/* A cold ring may hold a message without a doorbell: see section_header.active. */
static void sweep_cold_rings(struct transport *transport)
{
	uint64_t control = 0;

	for (uint32_t source = 0; source < transport->peer_end; source++) {
		struct peer *peer = transport_peer_in_region(transport, source);
		if (peer != NULL && peer->receiving && peer->hot_index == 0 && ring_peek(&peer->in, &control))
			transport_warm(transport, peer);
	}
}

bool transport_refresh(struct transport *transport, struct peer *peer, uint32_t count)
{
	if (!peer->sending || !transport_may_write(peer) || peer->switching ||
	    transport_is_failing_over(peer) || network_tx_paused(peer))
		return false;
	switch (ring_credit(&peer->out)) {
	case RING_CREDIT_VIOLATION:
		transport_fail(transport, peer, -EPROTO, "it gave impossible credit");
		return false;
	case RING_CREDIT_CLOSED:
		transport_break(transport, peer, -ECONNABORTED,
				"it took this process for dead or hostile, and reads no more");
		return false;
	default:
		transport_lengthen(transport, peer);
		if (ring_has_room(&peer->out, count))
			return true;
		transport_note_full(transport, peer);
		transport->short_of_room = true;
		return false;
	}
}

uint32_t transport_chunk_slow(struct transport *transport, struct peer *peer, uint32_t length)
{
	for (uint32_t source = 0; source < transport->peer_end; source++) {
		struct peer *other = transport->peers[source];
		if (other != NULL && other->account.outstanding > 0 && other->state != PEER_FAILED &&
		    chunk_collect(other->pool, &other->account) < 0)
			transport_fail(transport, other, -EPROTO,
				       "it returned a chunk that it does not have");
	}
	uint32_t chunk = chunk_take(peer->pool, &peer->account, length);
	transport->short_of_room = transport->short_of_room || chunk == CHUNK_NONE;
	return chunk;
}

bool transport_drained(struct transport *transport)
{
	for (uint32_t source = 0; source < transport->peer_end; source++) {
		struct peer *peer = transport_peer_in_region(transport, source);
		if (peer == NULL || !peer->sending || peer->state == PEER_FAILED || peer_is_self(peer) ||
		    transport_is_failing_over(peer))
			continue;
		if (peer->switching)
			return false;
		if (peer->network != NULL || ring_credit(&peer->out) != RING_CREDIT_OK)
			continue;
		if (peer->out.limit - peer->out.position != peer->out.mask + 1)
			return false;
	}
	return network_drained(transport);
}

static void check_now_and_then(struct transport *transport)
{
	uint64_t now = monotonic_now();

	if (now < transport->next_check)
		return;
	transport->next_check = now + LIVENESS_INTERVAL;
	if (transport->sparse)
		sweep_cold_rings(transport);
	transport_check_peers(transport);
	transport_begin_switches(transport);
	transport_shorten_rings(transport);
	transport_publish_counts(transport);
}

static uint32_t read_all_doorbells(struct transport *transport)
{
	uint32_t heard = 0;

	for (uint32_t i = 0; i < transport->attachment_count; i++)
		heard += transport_read_doorbells(&transport->attachments[i]);
	return heard;
}

/*
 * Returns how many doorbells rang. The poll came before the doorbells were read, and a member that
 * rings a process about to sleep rings only once. So the caller must poll again, and not report an
 * empty poll.
 */
static uint32_t progress_regions(struct transport *transport, bool idle)
{
	/*
	 * Report first what failed with our slot: until then its rings are in the list of hot
	 * rings.
	 */
	if (!transport_check_slots(transport))
		return 0;
	/*
	 * The doorbells of one region at a time: with several regions, a doorbell is read at most a
	 * few hundred polls later.
	 */
	uint32_t heard = transport_read_doorbells(&transport->attachments[transport->next_attachment]);

	if (++transport->next_attachment >= transport->attachment_count)
		transport->next_attachment = 0;

	if (idle)
		publish_idle_credit(transport);
	if (transport->hot_count > HOT_RINGS_KEPT)
		cool_idle_rings(transport);
	if (transport->polls % POLLS_PER_SWEEP == 0)
		sweep_cold_rings(transport);
	transport_wake_for_room(transport);
	/* A busy endpoint must also check its peers, but less often. */
	if (transport->sparse || transport->polls % (idle ? POLLS_PER_CHECK_IDLE : POLLS_PER_CHECK_BUSY) == 0)
		check_now_and_then(transport);
	return heard;
}

/*
 * An endpoint that works between polls, sleeps, or shares its processor would take long to reach
 * the 64th poll, or thousands, for everything that is not in a hot ring. So each poll reads the
 * clock while polls are sparse.
 */
static void note_rate(struct transport *transport)
{
	uint64_t now = monotonic_now();
	uint64_t polls = transport->polls - transport->rated_polls;
	bool sparse = now - transport->rated > polls * SPARSE_NANOSECONDS;

	transport->rated = now;
	transport->rated_polls = transport->polls;
	if (sparse == transport->sparse)
		return;
	transport->sparse = sparse;
	transport->attention += sparse ? 1U : -1U;
}

/* For sparse polls: is the slow part for the regions due? With 15 members or fewer, always. */
static bool is_due(struct transport *transport)
{
	uint64_t now = monotonic_now();

	if (now < transport->next_attend)
		return false;
	transport->next_attend = now + (uint64_t)transport->members * ATTEND_NANOSECONDS_A_MEMBER;
	return true;
}

uint32_t transport_progress_slow(struct transport *transport, bool idle)
{
	bool seldom = (transport->polls & 63) == 0;
	uint32_t handled = 0;

	if (seldom && (transport->attention != 0 || transport->polls % POLLS_PER_RATE == 0))
		note_rate(transport);
	if (transport->network != NULL)
		handled = network_progress_slow(transport, idle);
	if (transport->switches != 0)
		transport_continue_switches(transport);
	if (seldom || (transport->sparse && is_due(transport)))
		handled += progress_regions(transport, idle);
	if (transport->failures != 0)
		transport_report_failures(transport);
	return handled;
}

uint32_t transport_progress_full(struct transport *transport)
{
	uint32_t handled = transport->network != NULL ? network_progress_full(transport) : 0;

	if (!transport_check_slots(transport))
		transport_report_failures(transport);
	/* An interrupt from here on may announce something that this poll does not find. */
	for (uint32_t i = 0; i < transport->attachment_count; i++)
		transport->attachments[i].interrupts_seen =
			doorbell_count(transport->attachments[i].region->doorbell);
	(void)read_all_doorbells(transport);
	publish_idle_credit(transport);
	sweep_cold_rings(transport);
	transport_wake_for_room(transport);
	check_now_and_then(transport);
	if (transport->switches != 0)
		transport_continue_switches(transport);
	if (transport->failures != 0)
		transport_report_failures(transport);
	return handled;
}
