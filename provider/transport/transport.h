/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transport.h - reaching peers: connections made when they are first used, rings polled while
 * they are busy, and peers that left, died or broke the protocol found out.
 *
 * A transport knows slots of a ring and chunks, not messages. A peer is reached through the region,
 * our own endpoint included, or over the network, which carries slots and chunks in frames: see
 * network.h.
 */
#ifndef VICINAL_TRANSPORT_TRANSPORT_H
#define VICINAL_TRANSPORT_TRANSPORT_H

#include <errno.h>
#include <limits.h>

#include "region/chunks.h"
#include "region/heap.h"
#include "region/identity.h"
#include "region/member.h"
#include "region/ring.h"
#include "region/route.h"
#include "region/sleep.h"

enum peer_state {
	PEER_PRESENT,       /* confirmed; the rings are opened when first used */
	PEER_FAILED,        /* left, dead, or a violator: everything to it completes in error */
	PEER_ERROR_PENDING, /* it failed, but is gone on with: the first to ask for something is told, once */
};

/* Going on over the network with a peer of the region that the region is of no use for: see failover.h. */
enum peer_failover {
	FAILOVER_NONE,
	FAILOVER_DRAINING, /* the core still has frames of before */
	FAILOVER_ASKING,   /* the peer has not said yet that it begins anew */
	FAILOVER_DONE,     /* or given up: it is not tried again */
};

/*
 * What one endpoint knows of another. Private. The layer above embeds it as the first
 * member of its own struct and says how large that is. A message that is sent touches the
 * first two lines; a message that comes the third, and the second for transport_holds_slot(). The
 * other lines are needed seldom.
 */
struct peer {
	/* line 0, 1: sending */
	struct ring_out out;
	const shared_u64 *active_word; /* the receiver's: does it poll our ring? */
	uint64_t active_bit;
	enum peer_state state;
	bool sending;      /* `out` is open */
	bool waits;        /* the layer above keeps slots for it back: what comes now goes behind them */
	uint64_t messages; /* sent, for people */
	uint64_t bytes;
	struct network_peer *network; /* what we send goes over the network; NULL: through the region */
	struct chunk_pool *pool;      /* that chunks for it are taken from */
	shared_u32 *doorbell;
	const shared_u32 *sleeping_word; /* the receiver's: must it be woken? */
	uint32_t doorbell_count;
	uint32_t own_tenure;         /* our epoch in the region that it is in with us */
	const shared_u64 *own_claim; /* and our claim word there: see transport_holds_slot() */
	/* line 2: receiving */
	struct ring_in in;
	const shared_u64 *claim; /* whose section it reads: see member_is_intact() */
	uint32_t tenure;         /* the epoch that it has there */
	uint32_t hot_index; /* 1 + where its ring is in transport.hot, which each poll looks at; 0: nowhere */
	uint32_t source;    /* its number here: in transport->peers, and what its messages are matched by */
	uint32_t epoch;
	/* chunks */
	shared_bytes *section; /* its chunks lie in so many bytes from here on */
	uint64_t section_bytes;
	struct chunk_returns returns;
	struct chunk_account account;
	/* identity */
	uint64_t nonce;
	struct member_identity said;   /* of one in a region: who it said it was, when it was met there */
	struct attachment *attachment; /* the region that it is in with us; NULL: in none */
	uint32_t slot;                 /* and its slot there */
	bool alias;                    /* it is there by another number than its slot's: see reattach.h */
	bool receiving;                /* `in` is open */
	bool mapped;   /* through the region both ways: one end may reach into the other's memory */
	uint32_t held; /* 1 + the position of a slot that was told TRANSPORT_HOLDS; 0: none was */
	/* life and end */
	uint64_t gone;  /* since when the region says that one beyond it left or died; 0: it does not */
	uint32_t woken; /* its `sleeping` when we woke it last */
	bool quiet; /* its heart stood still when we looked last: only the kernel knows whether it lives */
	struct last_heartbeat last_heartbeat;
	int failure;   /* negative errno, once failed, or until that is told */
	bool reported; /* the user was told */
	const char *reason;
	/* its transport, and a switch of it: see switch.h */
	struct network_peer *beyond; /* where it is in the network; NULL: in none, or nobody asked */
	bool switching;              /* our last slot this way is out: nothing is sent before it was taken */
	bool owes_switched;          /* its last slot was taken, and it was not told */
	bool framed;                 /* what it sends comes over the network */
	bool broken;                 /* it failed for what is in the region, and may be elsewhere */
	enum peer_failover failover;
	struct member_core where; /* in the network, as its address or its section said; length 0: unknown */
} __attribute__((aligned(REGION_LINE)));
_Static_assert(offsetof(struct peer, messages) == REGION_LINE, "a message that is sent: two lines");
_Static_assert(offsetof(struct peer, in) == 2 * REGION_LINE, "a message that comes: this line");
_Static_assert(offsetof(struct peer, section) == 3 * REGION_LINE, "a message that comes: no line behind it");

/*
 * What an empty poll needs of a ring, and no line of struct peer: with hundreds of them, lines are what it
 * costs. Brought up to date by transport_note_ring() when the ring's position changes.
 */
struct hot_ring {
	const shared_u64 *control; /* of the slot at the ring's position */
	struct peer *peer;
	uint32_t lap;    /* of a new slot there */
	uint32_t active; /* transport.polls when it was last not empty */
};

struct transport;
struct network;
struct network_peer;

/* A slot, for those that carry it elsewhere and do not know what it means. */
struct slot_shape {
	uint32_t payload; /* bytes of the payload that mean something, a multiple of 8 */
	uint32_t chunk; /* where the payload names a chunk, two words of 32 bits; SLOT_NO_CHUNK if it does not
			 */
	bool follows;   /* it belongs to the slot before it */
};
#define SLOT_NO_CHUNK UINT32_MAX

/* The layer above, as the transport calls it. */
struct transport_user {
	size_t peer_bytes; /* of the struct that embeds struct peer */
	/*
	 * `peer` failed: complete what concerns it. Called once a peer, or twice if it is gone on with, never
	 * from a send. Returns whether there was anything, and so somebody who knows now.
	 */
	bool (*failed)(void *user, struct peer *peer);
	/* Another member took the slot of `peer`, which failed before: forget what it sent. */
	void (*replaced)(void *user, struct peer *peer);
	/* There is a peer with this number, and none had one as high. Returns 0 or -ENOMEM. */
	int (*added)(void *user, uint32_t source);
	/* What came over the network lies in a buffer of ours, and that is needed: take it out. Or -ENOMEM.
	 */
	int (*settle)(void *user, struct peer *peer);
	/* Deals with a slot: see transport_handler. For transports that do not have it in their short path.
	 */
	int (*arrive)(void *user, struct peer *peer, uint64_t control);
	/* A network_fetch() ended, with 0 or a positive errno. */
	void (*fetched)(void *user, void *cookie, size_t length, int error);
	/* What of a slot a frame must carry. */
	struct slot_shape (*shape)(uint64_t control);
	/* There is room for a slot: push that it is the last this way. */
	void (*switch_route)(void *user, struct peer *peer);
	/* Does one of us still copy from or to the other's memory, for a message? */
	bool (*reaches)(void *user, const struct peer *peer);
};

/* What a handler says of the last slot that comes this way. */
#define TRANSPORT_SWITCHES INT_MIN
/* It stays in the ring: nothing was done of it, and it is handled again at the next poll. */
#define TRANSPORT_HOLDS (INT_MIN + 1)

/* So many regions an endpoint may be in. */
#define ATTACHMENTS_MAX 4U
/* No member has a number by an attachment with this base: all are aliases there. */
#define TRANSPORT_NO_BASE UINT32_MAX

/* What an endpoint has in one region that it is in: its place there, rings, chunks and doorbells. */
struct attachment {
	struct transport *transport;
	struct region *region;
	struct member *member;
	uint32_t base;            /* the member in slot 0 has this number in transport->peers */
	uint32_t *doorbells_seen; /* by slot */
	uint64_t active[8];       /* our own copy of what we publish */
	/* our arena */
	uint32_t ring_begin; /* section offset of the first ring */
	uint32_t ring_next;  /* of the next one */
	uint32_t ring_end;
	uint32_t *ring_of;       /* by slot: section offset of a ring made before, 0 if none */
	uint32_t *ring_slots_of; /* by slot */
	uint32_t rings;
	uint32_t endpoint;     /* which of our process we are: for people */
	struct peer **aliases; /* by slot: members that have another number here; NULL while there are none */
	bool welcomes; /* peers that reach us over the network are asked whether they are here: reattach.h */
	bool leaving;  /* we are to leave this region: see detach.h */
	bool met_all;  /* of those that are in it, for that */
	struct attachment *next;  /* what we came back to when we had left this one; NULL if we did not */
	uint64_t next_search;     /* when we look again for a region to come back to */
	uint32_t failed_searches; /* in a row, that found one of no use */
	bool evicted;             /* we were taken for dead, and another has our slot and section */
	bool cut;                 /* the region's file was cut: what is mapped is ours alone */
	/* sleeping */
	uint32_t sleeping;        /* our own copy of what we publish */
	bool strangers;           /* a member is there that barriers or futexes do not reach */
	uint64_t next_survey;     /* when `strangers` is out of date */
	uint32_t interrupts_seen; /* of the region's doorbell, before the last look */
	struct chunk_pool chunks;
};

struct transport {
	const struct transport_user *user;
	void *context;
	struct peer **peers; /* by their numbers; NULL until first met */
	uint32_t members; /* the members of all attachments have lower numbers; from here on: the network's */
	uint32_t peer_end;    /* no peer has this number or a higher one */
	struct hot_ring *hot; /* rings polled at every poll */
	uint32_t hot_count;
	uint32_t hot_room; /* as many peers as may be in regions of ours */
	uint32_t polls;
	uint32_t failures;       /* peers failed but not yet told to the user */
	uint32_t attention;      /* reasons to attend to more than the rings at every poll: failures, a busy
				    network, switches, polls that are far apart */
	bool sparse;             /* they are */
	uint32_t rated_polls;    /* as many there were when their rate was last noted */
	uint64_t rated;          /* when that was */
	uint32_t switches;       /* peers that are switching, or are owed a word of it */
	bool switches_refused;   /* the user was told that a peer cannot switch */
	struct network *network; /* NULL if there is none */
	uint64_t next_attend;    /* while they are sparse: when the regions are attended to again */
	uint64_t next_check;
	/* finding out who died: see region_liveness.c */
	uint32_t next_checked;      /* the number of the peer that is looked at next */
	uint32_t next_asked;        /* and of the one that the kernel is asked for next, if it is quiet */
	uint32_t questions;         /* that may still be asked in this check */
	uint32_t questions_in_turn; /* of them, for peers whose turn it is */
	uint32_t awake;             /* peers that looked after theirs when all were looked at last */
	uint32_t awake_now;         /* the same, of those looked at since */
	uint64_t timeout;           /* nanoseconds a heartbeat may be still */
	/* sleeping */
	uint32_t sleepers;  /* threads that sleep, or are about to */
	bool ordered;       /* the last sleep_begin() put a barrier into all senders */
	bool short_of_room; /* for a ring or a chunk, since the last sleep */
	struct heap *heap;  /* the application's memory in our section of the first; NULL if it has none */
	uint32_t attachment_count;
	uint32_t next_attachment; /* whose doorbells are read next */
	/* The regions that we are in, the first first; then those that we came back to when we had left one.
	 */
	struct attachment attachments[2 * ATTACHMENTS_MAX];
};

/* Join `region`. Returns 0 or a negative errno with a text. */
int transport_open(struct transport **transport, struct region *region, uint32_t endpoint, uint64_t timeout,
		   const struct transport_user *user, void *context, struct region_error *error);
/*
 * Join one more, before anybody is told of us, and before network_open(): at most ATTACHMENTS_MAX
 * in all. We are the same endpoint there. Returns 0 or a negative errno with a text, and then all is as
 * before.
 */
int transport_join(struct transport *transport, struct region *region, uint32_t endpoint,
		   struct region_error *error);
/* Leave all. The peers' memory goes with it. */
void transport_close(struct transport *transport);

/*
 * The member with this number, epoch and nonce, met now if it was not before. NULL if it does not
 * take part in that region, or not any more.
 */
struct peer *transport_meet(struct transport *transport, uint32_t source, uint32_t epoch, uint64_t nonce);

/* The attachment of the member with this number; NULL if it is none of our regions'. */
static inline struct attachment *transport_attachment(struct transport *transport, uint32_t source)
{
	for (uint32_t i = transport->attachment_count; i-- > 0;)
		if (source >= transport->attachments[i].base)
			return source < transport->members ? &transport->attachments[i] : NULL;
	return NULL;
}

/* Zeroed memory for a peer, at the beginning of a line; free() gives it back. NULL if none is left. */
struct peer *transport_new_peer(const struct transport *transport);

/* The peer of this number that is in one of our regions, as transport_attachment() or as an alias; else NULL.
 */
static inline struct peer *transport_peer_in_region(const struct transport *transport, uint32_t source)
{
	struct peer *peer = transport->peers[source];

	/* One in the network too has a second place. */
	return peer != NULL && peer->source == source && peer->attachment != NULL ? peer : NULL;
}

/* Is it this very endpoint, which may send to itself? */
static inline bool peer_is_self(const struct peer *peer)
{
	return peer->attachment != NULL && peer->slot == peer->attachment->member->slot;
}

/* Open the ring to `peer`. Returns 0, or -ENOMEM if our arena has no room for one. */
int transport_connect(struct peer *peer);

/* The peer broke the protocol, left or died. Told to the user at the next poll. */
void transport_fail(struct transport *transport, struct peer *peer, int failure, const char *reason);

/*
 * The same where the region is what failed, and not the peer: it is gone on with over the network, if that
 * reaches it. So it is with every violation of what the region's words may be (-EPROTO). See failover.h.
 */
void transport_break(struct transport *transport, struct peer *peer, int failure, const char *reason);

/* What is reported for an operation with a peer that is not PEER_PRESENT. */
int transport_refuse(struct peer *peer);

/* What a slot came to that a handler did not take: see transport_handler. */
void transport_end_slots(struct transport *transport, struct peer *peer, int result);

/*
 * Slow part of a poll: doorbells, rings that went cold or are, liveness, the network. Returns how
 * many messages there were, and doorbells that rang: their rings are to be looked at again.
 */
uint32_t transport_progress_slow(struct transport *transport, bool idle);

/* The same, and all that transport_progress_slow() leaves to one poll in many: before and after a sleep. */
uint32_t transport_progress_full(struct transport *transport);

/*
 * Sleeping: begin, look and poll once more; if there was nothing, fill in what to wait on,
 * and sleep on it without holding a lock. Then end. Several threads may do so.
 */
void transport_sleep_begin(struct transport *transport);
/* Returns whether all that can come ends a sleep. If not, it must be short: sleep_pause(). */
bool transport_sleep_watch(struct transport *transport, struct sleep_watch *watch);
void transport_sleep_end(struct transport *transport);
/* Wake the peers that sleep until we give room back, and have done so. */
void transport_wake_for_room(struct transport *transport);
/* No sleep is longer than this: peers may die. In nanoseconds. */
#define LIVENESS_INTERVAL UINT64_C(50000000)

/* In a forked child: the endpoint is our parent's, and all its peers are gone for us. */
void transport_after_fork(struct transport *transport);

/*
 * Look whether peers live, and say that we do: some at a time, the next ones at the next call, and with a
 * bounded number of system calls. See region_liveness.c. For every LIVENESS_INTERVAL.
 */
void transport_check_peers(struct transport *transport);

/* Is it neither reached through the region any more, nor over the network yet? */
static inline bool transport_is_failing_over(const struct peer *peer)
{
	return peer->failover == FAILOVER_DRAINING || peer->failover == FAILOVER_ASKING;
}

/*
 * The application says where in the network (slot, epoch, nonce) is, whom it knows by the region. Its
 * word counts more than the region's.
 */
void transport_set_core_address(struct peer *peer, const struct member_core *where);
/*
 * The same as transport_meet(), of one that is at `where`, once its region is of no use and confirms nobody.
 * NULL if the region is of use, or there is no network.
 */
struct peer *transport_meet_without_region(struct transport *transport, uint32_t source, uint32_t epoch,
					   uint64_t nonce, const struct member_core *where);

/* Read fresh credit; false if there still is no room for `count` slots. */
bool transport_refresh(struct transport *transport, struct peer *peer, uint32_t count);

/* A chunk for `peer`, after taking back what peers returned if need be. CHUNK_NONE if none. */
uint32_t transport_chunk_slow(struct transport *transport, struct peer *peer, uint32_t length);

/* Everything that we sent was read by its receivers, or they are gone. */
bool transport_drained(struct transport *transport);

/* Bring what we publish for people up to date. */
void transport_publish_counts(struct transport *transport);

/*
 * Have we still our slot in the region that the peer is in with us? A virtual machine that was paused for too
 * long may have a successor there, and must not write in its section. It may go on anywhere, so this is asked
 * before each message that is written there and each that is taken. The claim word changes only when the slot
 * gets another owner, so it stays in the cache. What was being written at the pause is finished all the same,
 * at most a message's slots or a chunk.
 */
static inline bool transport_holds_slot(const struct peer *peer)
{
	return __builtin_expect((uint32_t)(shared_load_u64(peer->own_claim) >> 32) == peer->own_tenure, 1);
}

/* The same of a region, for what is written there seldom. */
static inline bool attachment_holds_slot(const struct attachment *attachment)
{
	return !attachment->evicted &&
	       member_is_intact(attachment->region, attachment->member->slot, attachment->member->epoch);
}

/* May what is sent to the peer be written where it goes? */
static inline bool transport_may_write(const struct peer *peer)
{
	return transport_holds_slot(peer) || peer->network != NULL;
}

static inline bool transport_room(struct transport *transport, struct peer *peer, uint32_t count)
{
	return (__builtin_expect(ring_has_room(&peer->out, count), 1) && transport_may_write(peer)) ||
	       transport_refresh(transport, peer, count);
}

/* Give a chunk of the peer's back, some time after it came: the word that says so is in our section. */
static inline void transport_return_chunk(struct peer *peer, uint32_t chunk)
{
	if (transport_holds_slot(peer) || peer->framed)
		chunk_return(&peer->returns, chunk);
}

static inline uint32_t transport_chunk(struct transport *transport, struct peer *peer, uint32_t length)
{
	uint32_t chunk = chunk_take(peer->pool, &peer->account, length);

	return __builtin_expect(chunk != CHUNK_NONE, 1) ? chunk
							: transport_chunk_slow(transport, peer, length);
}

/* The receiver looks at our ring only now and then, or sleeps. */
void transport_ring(struct peer *peer);

/* After a push: if the receiver does not look at our ring each time, ring. */
static inline void transport_wake(struct peer *peer)
{
	if (__builtin_expect((shared_load_u64(peer->active_word) & peer->active_bit) == 0, 0))
		transport_ring(peer);
}

/*
 * Deal with one slot. Returns how many slots it was, TRANSPORT_SWITCHES if it is the last that comes this
 * way, or a negative errno: the peer broke the protocol. `control` was loaded once, from the slot at the
 * ring's position. A region's ring may be told TRANSPORT_HOLDS, too.
 */
typedef int (*transport_handler)(void *context, struct peer *peer, uint64_t control);

/* At most this many slots of one ring in a poll, so that no peer keeps the others waiting. */
#define TRANSPORT_BURST 16U

/* Is what we read of this peer's section still what it wrote? See member_is_intact(). */
static inline bool transport_intact(const struct peer *peer)
{
	return __builtin_expect(member_claim_is(peer->claim, peer->tenure), 1);
}

/* `length` bytes at `offset` in what the peer's chunks lie in, or NULL if they cannot be there. */
static inline shared_bytes *transport_view(const struct peer *peer, uint64_t offset, uint64_t length)
{
	if (offset > peer->section_bytes || length > peer->section_bytes - offset)
		return NULL;
	return peer->section + offset;
}

/* The hot ring of `peer` is at another position. */
static inline void transport_note_ring(struct transport *transport, const struct peer *peer)
{
	struct hot_ring *ring = &transport->hot[peer->hot_index - 1];

	ring->control = &ring_at(&peer->in, 0)->control;
	ring->lap = (uint32_t)ring_lap(peer->in.position, peer->in.shift);
	ring->active = transport->polls;
}

/*
 * Take slots from one ring, the first of which has this control word. Returns how many messages there
 * were.
 */
static inline __attribute__((always_inline)) uint32_t
transport_drain(struct transport *transport, struct peer *peer, uint64_t control, transport_handler handle)
{
	uint32_t handled = 0;

	do {
		/* Is it for us, or for somebody who took our slot? Then transport_progress_slow() finds that
		 * out soon. */
		if (!transport_holds_slot(peer))
			break;
		/* Is it from this peer, or from somebody who took its slot, to somebody else? */
		if (!transport_intact(peer)) {
			transport_break(transport, peer, -ECONNRESET,
					"it is gone, and its slot was taken by another");
			break;
		}
		int slots = handle(transport->context, peer, control);
		if (__builtin_expect(slots <= 0, 0)) {
			transport_end_slots(transport, peer, slots);
			break;
		}
		ring_consume(&peer->in, (uint32_t)slots);
		handled++;
	} while (handled < TRANSPORT_BURST && ring_peek(&peer->in, &control));
	/* It may be read no more: then another ring is in its place. */
	if (__builtin_expect(peer->hot_index != 0, 1))
		transport_note_ring(transport, peer);
	return handled;
}

/* The short path of progress: look at every hot ring once. Returns how many messages. */
static inline __attribute__((always_inline)) uint32_t transport_poll(struct transport *transport,
								     transport_handler handle)
{
	uint32_t handled = 0;

	for (uint32_t i = 0; i < transport->hot_count; i++) {
		const struct hot_ring *ring = &transport->hot[i];
		/* As ring_peek(): pairs with the release store in ring_push(). */
		uint64_t control = shared_acquire_u64(ring->control);
		if ((control & CONTROL_LAP_MASK) == ring->lap)
			handled += transport_drain(transport, ring->peer, control, handle);
	}
	/*
	 * Doorbells, liveness and cold rings can wait for one poll in 64: a line of
	 * doorbells costs a few nanoseconds when nobody rang.
	 */
	if (__builtin_expect((++transport->polls & 63) == 0 || transport->attention != 0, 0))
		handled += transport_progress_slow(transport, handled == 0);
	return handled;
}

#endif
