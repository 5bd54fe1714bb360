/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * region_liveness.c - detects dead peers, and checks whether we are still members ourselves.
 *
 * A peer that checks its own peers increments its heartbeat, so one load shows that it lives. A
 * peer that computes does not increment its heartbeat. Only the kernel knows whether such a peer
 * lives, because the peer holds a lock. For each question the kernel walks a list of all locks of
 * the region's file, and processes that ask wait for each other. So with N members, M of which ask,
 * a question costs N steps of that walk, and each member asks about ASKED_STEPS / (N * M) peers in
 * LIVENESS_INTERVAL. All questions together then take a few hundredths of a processor, for any
 * number of members. Measured: docs/decisions/0024.
 *
 * Peers whose heartbeat has just stopped, and peers that another member found dead, come first. The
 * other quiet peers follow in turn.
 */
#include "transport/detach.h"
#include "transport/failover.h"
#include "transport/network.h"
#include "transport/reattach.h"
#include "transport/region_transport.h"
#include "transport/switch.h"

#include "region/guard.h"

/* The number of peers in one check. The largest region takes 8 checks, 0.4 s. */
#define CHECKED_AT_ONCE 64U
/*
 * Steps of the kernel's walk that all members together may cause in LIVENESS_INTERVAL. A step takes
 * 4 ns: 1 ms in all, 2 %.
 */
#define ASKED_STEPS 262144U
/*
 * The minimum number of questions: one for a peer that has just become quiet, and one for the peer
 * whose turn it is.
 */
#define ASKED_MIN 2U

/* The time for which frames are still expected from a peer that is gone according to the region. */
#define GONE_NANOSECONDS UINT64_C(1000000000)

/*
 * ---- our own membership ----
 */

/* We no longer own the slot, so we must not write in the section. */
void transport_evict(struct attachment *attachment, const char *reason)
{
	attachment->evicted = true;
	transport_break_all(attachment, reason);
}

/*
 * Evict us if we were paused for so long that another member has our slot, because our writes would
 * go to its section. If the region itself is gone, continue in private memory.
 */
static bool check_ourselves(struct attachment *attachment)
{
	const struct region *region = attachment->region;
	struct transport *transport = attachment->transport;

	if (attachment->evicted || member_is_joined(attachment->member))
		return true;
	if (atomic_load_explicit(&attachment->region->cut, memory_order_relaxed))
		transport_continue_alone(attachment, region->brokered ? "no memory was left for the region"
						     : region->kind == REGION_FILE
							     ? "the region's file was truncated"
							     : "the region's device was unplugged");
	else if (guard_is_gone(attachment->region))
		transport_continue_alone(attachment, region->brokered ? "a member emptied the region"
						     : region->kind == REGION_FILE
							     ? "the region's file was emptied"
							     : "the region's device was unplugged");
	else
		transport_evict(attachment,
				"this endpoint was taken for dead, and another member has its slot");
	if (attachment == &transport->attachments[0] && transport->heap != NULL)
		heap_stop(transport->heap);
	return false;
}

bool transport_check_slots(struct transport *transport)
{
	bool kept = true;

	for (uint32_t i = 0; i < transport->attachment_count; i++)
		kept = check_ourselves(&transport->attachments[i]) && kept;
	return kept;
}

/* ---- peers ---- */

/*
 * The last frames of a peer that is gone need a moment, and the very last says that the peer left.
 */
static bool may_be_on_its_way(struct peer *peer, uint64_t now)
{
	if (peer->gone == 0)
		peer->gone = now;
	return now - peer->gone < GONE_NANOSECONDS;
}

static bool is_watched(const struct peer *peer)
{
	return peer != NULL && peer->state != PEER_FAILED && peer->failover == FAILOVER_NONE;
}

static void take_for_gone(struct transport *transport, struct peer *peer, enum member_state state,
			  uint64_t now)
{
	uint64_t control = 0;

	if (transport_undo_reattach(peer))
		return;
	/*
	 * The peer says over the network that it left the region, and the network now shows whether
	 * it lives.
	 */
	if (state == MEMBER_LEFT && transport_is_detaching(peer))
		return;
	if (peer->framed && may_be_on_its_way(peer, now))
		return;
	/*
	 * Messages that the peer sent before its end are still in the ring: read them first, if
	 * there is room.
	 */
	if (peer->receiving && ring_peek(&peer->in, &control) && peer->held != peer->in.position + 1 &&
	    transport_intact(peer)) {
		transport_warm(transport, peer);
		return;
	}
	if (state == MEMBER_LEFT)
		transport_fail(transport, peer, -ECONNABORTED, "it left the region");
	else if (transport_intact(peer))
		transport_fail(transport, peer, -ECONNRESET, "it died");
	else /* or the claim word was overwritten, and the peer may live */
		transport_break(transport, peer, -ECONNRESET, "its slot belongs to another member: it died");
}

static void take_for_alive(struct transport *transport, struct peer *peer)
{
	peer->gone = 0;
	(void)transport_refresh(transport, peer, 0);
	if (peer->receiving && !ring_is_sound(&peer->in) && transport_intact(peer))
		transport_fail(transport, peer, -EPROTO, "its ring was overwritten");
}

static void deal_with(struct transport *transport, struct peer *peer, enum member_state state, uint64_t now)
{
	if (state == MEMBER_ALIVE || state == MEMBER_QUIET)
		take_for_alive(transport, peer);
	else
		take_for_gone(transport, peer, state, now);
}

/*
 * Ask the kernel. A question that finds a dead peer does not count, because other peers may have
 * died with it.
 */
static void ask_for(struct transport *transport, struct peer *peer, uint64_t now)
{
	const struct member *self = peer->attachment->member;
	enum member_state state = member_observe(self, peer->slot, peer->tenure, &peer->last_heartbeat, now,
						 transport->timeout);

	if (state == MEMBER_DIED && !peer->attachment->evicted)
		member_publish_death(self, peer->slot, peer->tenure);
	else
		transport->questions--;
	deal_with(transport, peer, state, now);
}

/*
 * `reporter` may have published that another peer of ours is dead. If so, ask the kernel about that
 * peer.
 */
static void check_death_notice(struct transport *transport, const struct peer *reporter, uint64_t now)
{
	uint32_t slot = 0;
	uint32_t epoch = 0;

	if (transport->questions <= transport->questions_in_turn ||
	    !member_says_dead(reporter->attachment->region, reporter->slot, &slot, &epoch))
		return;
	struct peer *peer = transport_peer_in(reporter->attachment, slot, epoch);
	if (peer != NULL && is_watched(peer) && peer->quiet)
		ask_for(transport, peer, now);
}

static void check_heartbeat(struct transport *transport, struct peer *peer, uint64_t now)
{
	enum member_state state = member_check_heartbeat(peer->attachment->member, peer->slot, peer->tenure,
							 &peer->last_heartbeat, now, transport->timeout);
	bool was_quiet = peer->quiet;

	peer->quiet = state == MEMBER_QUIET;
	transport->awake_now += state == MEMBER_ALIVE;
	if (peer->quiet && !was_quiet && transport->questions > transport->questions_in_turn)
		ask_for(transport, peer, now);
	else
		deal_with(transport, peer, state, now);
	if (peer->attachment != NULL)
		check_death_notice(transport, peer, now);
}

/*
 * The budget of questions, as described at the top of this file. Half of it is for peers whose turn
 * it is.
 */
static void count_questions(struct transport *transport)
{
	uint32_t members = 1; /* one too many, so that it is never 0 */

	for (uint32_t i = 0; i < transport->attachment_count; i++)
		members += transport->attachments[i].region->members;
	transport->questions = ASKED_STEPS / (members * (1 + transport->awake));
	if (transport->questions < ASKED_MIN)
		transport->questions = ASKED_MIN;
	transport->questions_in_turn = transport->questions / 2;
}

static uint32_t after(const struct transport *transport, uint32_t source)
{
	return source + 1 < transport->peer_end ? source + 1 : 0;
}

static void check_some(struct transport *transport, uint64_t now)
{
	for (uint32_t i = 0; i < CHECKED_AT_ONCE && i < transport->peer_end; i++) {
		struct peer *peer = transport_peer_in_region(transport, transport->next_checked);
		if (is_watched(peer))
			check_heartbeat(transport, peer, now);
		transport->next_checked = after(transport, transport->next_checked);
		if (transport->next_checked == 0) {
			transport->awake = transport->awake_now;
			transport->awake_now = 0;
		}
	}
}

static void ask_for_some(struct transport *transport, uint64_t now)
{
	for (uint32_t i = 0; i < CHECKED_AT_ONCE && i < transport->peer_end && transport->questions > 0;
	     i++) {
		struct peer *peer = transport_peer_in_region(transport, transport->next_asked);
		if (is_watched(peer) && peer->quiet)
			ask_for(transport, peer, now);
		transport->next_asked = after(transport, transport->next_asked);
	}
}

void transport_check_peers(struct transport *transport)
{
	uint64_t now = monotonic_now();

	(void)transport_check_slots(transport);
	for (uint32_t i = 0; i < transport->attachment_count; i++) {
		if (!transport->attachments[i].evicted && !transport->attachments[i].region->left)
			member_beat(transport->attachments[i].member);
	}
	count_questions(transport);
	check_some(transport, now);
	ask_for_some(transport, now);
	network_check(transport, now);
	transport_check_reattaching(transport, now);
}
