/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transport.h - reaching peers: opening connections at their first use, polling busy rings, and
 * detecting peers that left, died or violated the protocol.
 *
 * A transport handles slots of a ring and chunks, not messages. A peer, which may be our own
 * endpoint, is reached through the region, or over the network, which carries slots and chunks in
 * frames: see network.h.
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
	PEER_PRESENT,       /* confirmed; rings are opened at their first use */
	PEER_FAILED,        /* left, dead, or a violator: all its operations complete in error */
	PEER_ERROR_PENDING, /* failed, but failing over: the next operation fails, once */
};

/* The progress of failing over to the network with a peer of an unusable region: see failover.h. */
enum peer_failover {
	FAILOVER_NONE,
	FAILOVER_DRAINING, /* the core still has frames of the old stream */
	FAILOVER_ASKING,   /* the peer has not sent its FAILOVER yet */
	FAILOVER_DONE,     /* completed, or given up: there is no second failover */
};

/* Memory in our arena for a ring that was full too often. */
struct long_ring {
	uint32_t offset; /* in our section */
	uint32_t slots;  /* 0: there is none */
};

/*
 * What one endpoint knows of another. Private. The layer above embeds it as the first member of its
 * own struct, and gives the size of that struct. Sending a message touches the first two lines.
 * Receiving a message touches the third, and the second for transport_holds_slot(). The other lines
 * are rarely needed.
 */
struct peer {
	/* lines 0 and 1: sending */
	struct ring_out out;
	const shared_u64 *active_word; /* the receiver's: does it poll our ring? */
	uint64_t active_bit;
	enum peer_state state;
	bool sending;      /* `out` is open */
	bool waits;        /* the layer above delays slots for this peer: new slots must queue behind them */
	uint64_t messages; /* sent, for people */
	uint64_t bytes;
	struct network_peer *network; /* for sends over the network; NULL: through the region */
	struct chunk_pool *pool;      /* the source of chunks for this peer */
	shared_u32 *doorbell;
	const shared_u32 *sleeping_word; /* the receiver's: must it be woken? */
	uint32_t doorbell_count;
	uint32_t own_tenure;         /* our epoch in the region that we share */
	const shared_u64 *own_claim; /* our claim word there: see transport_holds_slot() */
	/* line 2: receiving */
	struct ring_in in;
	const shared_u64 *claim; /* the claim word of the section that `in` reads: see member_is_intact() */
	uint32_t tenure;         /* the peer's epoch there */
	uint32_t hot_index; /* 1 + index of its ring in transport.hot, which each poll reads; 0: not there */
	uint32_t source;    /* its number: index in transport->peers, and the source in matching */
	uint32_t epoch;
	/* chunks */
	shared_bytes *section; /* memory of the peer's chunks, section_bytes long */
	uint64_t section_bytes;
	struct chunk_returns returns;
	struct chunk_account account;
	/* identity */
	uint64_t nonce;
	struct member_identity said;   /* identity that the peer published when it became known in a region */
	struct attachment *attachment; /* our attachment to the region that we share; NULL: none */
	uint32_t slot;                 /* its slot there */
	bool alias;                    /* its number there is not that of its slot: see reattach.h */
	bool receiving;                /* `in` is open */
	bool mapped;   /* both directions use the region: one end may access the other's memory */
	uint32_t held; /* 1 + position of the slot with result TRANSPORT_HOLDS; 0: none */
	/* liveness */
	uint64_t gone;  /* since when it is gone according to the region; 0: not gone */
	uint32_t woken; /* value of its `sleeping` when it was last woken */
	bool quiet; /* its heartbeat stood still at the last check: only the kernel knows whether it lives */
	struct last_heartbeat last_heartbeat;
	/* the length of `out`: see region_rings.c */
	struct long_ring long_ring;
	uint32_t moved;       /* the position at which `out` last went on in other memory */
	bool moving;          /* the receiver may still read the memory before that */
	uint32_t fulls;       /* how often `out` was full lately, each time at another position */
	uint32_t full_at;     /* the position at the last time */
	uint32_t full_period; /* transport.period at the last time */
	int failure;          /* negative errno, after a failure, or until the failure is reported */
	bool reported;        /* the failure was reported to the user */
	const char *reason;
	/* its transport, and switches: see switch.h */
	struct network_peer *beyond; /* its state in the network; NULL: none, or never needed */
	bool switching; /* our last slot by this transport is pushed: nothing is sent until it was taken */
	bool owes_switched; /* its last slot was taken, and must still be acknowledged */
	bool framed;        /* what it sends comes over the network */
	bool broken; /* it failed because of words in the region, and may still be reached by the network */
	enum peer_failover failover;
	struct member_core where; /* network address, from its address or section; length 0: unknown */
} __attribute__((aligned(REGION_LINE)));
_Static_assert(offsetof(struct peer, messages) == REGION_LINE, "sending a message: two lines");
_Static_assert(offsetof(struct peer, in) == 2 * REGION_LINE, "receiving a message: this line");
_Static_assert(offsetof(struct peer, section) == 3 * REGION_LINE, "receiving a message: no line after it");

/*
 * What an empty poll needs of a ring, without a line of struct peer, because with hundreds of rings
 * the number of lines determines the cost. transport_note_ring() updates it when the ring's
 * position changes.
 */
struct hot_ring {
	const shared_u64 *control; /* control word of the slot at the ring's position */
	struct peer *peer;
	uint32_t lap;    /* lap of a new slot there */
	uint32_t active; /* transport.polls when it was last not empty */
};

struct transport;
struct network;
struct network_peer;

/* What code that carries slots elsewhere needs to know of a slot. */
struct slot_shape {
	uint32_t payload; /* used bytes of the payload, a multiple of 8 */
	uint32_t
		chunk; /* offset in the payload of the two 32-bit words that name a chunk, or SLOT_NO_CHUNK */
	bool follows;  /* belongs to the slot before it */
};
#define SLOT_NO_CHUNK UINT32_MAX

/* The layer above, called by the transport. */
struct transport_user {
	size_t peer_bytes; /* size of the struct that embeds struct peer */
	/*
	 * `peer` failed: complete its operations. Called once for each peer, twice if it fails
	 * over, and never from a send. Returns whether an operation ended, which reports the
	 * failure to the application.
	 */
	bool (*failed)(void *user, struct peer *peer);
	/* Another member took the slot of `peer`, which failed before: forget what `peer` sent. */
	void (*replaced)(void *user, struct peer *peer);
	/* There is a peer with this number, the highest so far. Returns 0 or -ENOMEM. */
	int (*added)(void *user, uint32_t source);
	/*
	 * Data from the network is in a buffer that is about to be reused: copy what is still
	 * needed. Returns 0 or -ENOMEM.
	 */
	int (*settle)(void *user, struct peer *peer);
	/* Handle a slot: see transport_handler. For transports that do not inline the handler. */
	int (*arrive)(void *user, struct peer *peer, uint64_t control);
	/* A network_fetch() ended. `error` is 0 or a positive errno. */
	void (*fetched)(void *user, void *cookie, size_t length, int error);
	/* The parts of a slot that a frame must carry. */
	struct slot_shape (*shape)(uint64_t control);
	/* Push SWITCH, the last slot by this transport. There is room for it. */
	void (*switch_route)(void *user, struct peer *peer);
	/* Push RESIZE, the last slot in this memory of the ring. There is room for it. */
	void (*resize)(void *user, struct peer *peer, uint32_t offset, uint32_t slots);
	/* Is a message in progress that copies directly between the memories of the two ends? */
	bool (*reaches)(void *user, const struct peer *peer);
};

/* The handler's result for the last slot by this transport. */
#define TRANSPORT_SWITCHES INT_MIN
/* The slot stays in the ring unprocessed, and is handled again at the next poll. */
#define TRANSPORT_HOLDS (INT_MIN + 1)

/* The maximum number of regions of an endpoint. */
#define ATTACHMENTS_MAX 4U
/* The base of an attachment in which no member has a number: all peers are aliases there. */
#define TRANSPORT_NO_BASE UINT32_MAX

/* An endpoint's attachment to one region: membership, rings, chunks and doorbells. */
struct attachment {
	struct transport *transport;
	struct region *region;
	struct member *member;
	uint32_t base;            /* number in transport->peers of the member in slot 0 */
	uint32_t *doorbells_seen; /* last read values, by slot */
	uint64_t active[8];       /* private copy of the published words */
	/* our arena */
	uint32_t ring_begin; /* section offset of the first ring */
	uint32_t ring_next;  /* section offset of the next ring */
	uint32_t ring_end;
	uint32_t *ring_of;       /* by slot: section offset of an existing ring, 0 if none */
	uint32_t *ring_slots_of; /* by slot */
	uint32_t rings;
	uint32_t ring_slots_kept;      /* for each member that has no ring */
	struct long_ring *spare_rings; /* that no peer uses; room for one of each member */
	uint32_t spare_count;
	uint32_t endpoint;     /* index of the endpoint in its process, for people */
	struct peer **aliases; /* by slot: members that have another number here; NULL while there are none */
	bool welcomes; /* peers that reach us over the network are asked whether they are here: see reattach.h
			*/
	bool leaving;  /* we must leave this region: see detach.h */
	bool met_all;  /* all members of the region are peers, as leaving requires */
	struct attachment *next;  /* the region that we joined after leaving this one, or NULL */
	uint64_t next_search;     /* time of the next search for a region */
	uint32_t failed_searches; /* consecutive searches that found an unusable region */
	bool evicted;             /* we were taken for dead, and another member has our slot and section */
	bool cut;                 /* the region's file was truncated: the mapping is private */
	/* sleeping */
	uint32_t sleeping;        /* private copy of the published word */
	bool strangers;           /* there is a member that barriers or futexes do not reach */
	uint64_t next_survey;     /* when `strangers` must be determined again */
	uint32_t interrupts_seen; /* of the region's doorbell, before the last poll */
	struct chunk_pool chunks;
};

struct transport {
	const struct transport_user *user;
	void *context;
	struct peer **peers; /* by number; NULL until the peer is created */
	uint32_t members;  /* members of all attachments have lower numbers, network peers have higher ones */
	uint32_t peer_end; /* 1 + the highest number of a peer */
	struct hot_ring *hot; /* rings that every poll reads */
	uint32_t hot_count;
	uint32_t hot_room; /* the number of members of all our regions */
	uint32_t polls;
	const void *next_slot;   /* behind the last message that was sent, until the next poll; else NULL */
	uint32_t failures;       /* failed peers that are not yet reported to the user */
	uint32_t attention;      /* reasons to execute the slow part at every poll: failures, a busy network,
				    switches, sparse polls */
	bool sparse;             /* polls are far apart */
	uint32_t rated_polls;    /* value of `polls` when the rate was last determined */
	uint64_t rated;          /* time of that */
	uint32_t switches;       /* peers that switch, fail over, or must still get an acknowledgement */
	bool switches_refused;   /* the user was told that a peer cannot be switched */
	struct network *network; /* NULL if there is none */
	uint64_t next_attend;    /* for sparse polls: when the slow part for the regions is due */
	uint64_t next_check;
	uint32_t period;     /* counts checks */
	uint32_t long_rings; /* peers that have one */
	/* detecting dead peers: see region_liveness.c */
	uint32_t next_checked; /* the number of the next peer to check */
	uint32_t next_asked;   /* the number of the next peer for a question to the kernel, if it is quiet */
	uint32_t questions;    /* questions left in this check */
	uint32_t questions_in_turn; /* questions reserved for peers whose turn it is */
	uint32_t awake;             /* peers whose heartbeat changed, in the last complete round */
	uint32_t awake_now;         /* the same, in the current round */
	uint64_t timeout;           /* nanoseconds that a heartbeat may stand still */
	/* sleeping */
	uint32_t sleepers;  /* threads that sleep, or are about to */
	bool ordered;       /* the last transport_sleep_begin() executed a barrier in all senders */
	bool short_of_room; /* a ring or chunks were short since the last sleep */
	struct heap *heap;  /* the application's memory in our section of the first region, or NULL */
	uint32_t attachment_count;
	uint32_t next_attachment; /* the attachment whose doorbells are read next */
	/*
	 * The regions of the endpoint, first the one joined first; then regions joined after
	 * leaving one.
	 */
	struct attachment attachments[2 * ATTACHMENTS_MAX];
};

/* Join `region`. Returns 0 or a negative errno with a text. */
int transport_open(struct transport **transport, struct region *region, uint32_t endpoint, uint64_t timeout,
		   const struct transport_user *user, void *context, struct region_error *error);
/*
 * Join one more region with the same endpoint, at most ATTACHMENTS_MAX in all. Call before any peer
 * learns our address, and before network_open(). Returns 0 or a negative errno with a text; after
 * an error nothing has changed.
 */
int transport_join(struct transport *transport, struct region *region, uint32_t endpoint,
		   struct region_error *error);
/* Leave all regions, and free all peers. */
void transport_close(struct transport *transport);

/*
 * The peer for the member with this number, epoch and nonce, created if necessary. NULL if the
 * member is not in that region, or no longer.
 */
struct peer *transport_meet(struct transport *transport, uint32_t source, uint32_t epoch, uint64_t nonce);

/* The attachment of the member with this number; NULL if the number belongs to no region. */
static inline struct attachment *transport_attachment(struct transport *transport, uint32_t source)
{
	for (uint32_t i = transport->attachment_count; i-- > 0;)
		if (source >= transport->attachments[i].base)
			return source < transport->members ? &transport->attachments[i] : NULL;
	return NULL;
}

/* Zeroed memory for a peer, aligned to a cache line; freed by free(). NULL if no memory is left. */
struct peer *transport_new_peer(const struct transport *transport);

/* The peer with this number if it is in one of our regions, as a member or an alias; else NULL. */
static inline struct peer *transport_peer_in_region(const struct transport *transport, uint32_t source)
{
	struct peer *peer = transport->peers[source];

	/* A peer that is also in the network has a second entry. */
	return peer != NULL && peer->source == source && peer->attachment != NULL ? peer : NULL;
}

/* Is the peer our own endpoint, which may send to itself? */
static inline bool peer_is_self(const struct peer *peer)
{
	return peer->attachment != NULL && peer->slot == peer->attachment->member->slot;
}

/* Open the ring to `peer`. Returns 0, or -ENOMEM if our arena has no room for one. */
int transport_connect(struct peer *peer);

/*
 * The peer's next slots are in a ring of this many slots at this offset in its section. Returns 1, or
 * -EPROTO if there can be none.
 */
int transport_take_resize(struct peer *peer, uint64_t offset, uint32_t slots);

/* The peer violated the protocol, left or died. The next poll reports it to the user. */
void transport_fail(struct transport *transport, struct peer *peer, int failure, const char *reason);

/*
 * The same if the failure concerns the region and not the peer: the pair fails over to the network,
 * if possible. Every violation in the region's words (-EPROTO) is such a failure. See failover.h.
 */
void transport_break(struct transport *transport, struct peer *peer, int failure, const char *reason);

/* The error for an operation with a peer that is not PEER_PRESENT. */
int transport_refuse(struct peer *peer);

/* Act on a slot that the handler did not take. `result` is the handler's: see transport_handler. */
void transport_end_slots(struct transport *transport, struct peer *peer, int result);

/*
 * The slow part of a poll: doorbells, cold rings, liveness, the network. Returns the number of
 * messages and doorbells; the rings behind these doorbells must be polled again.
 */
uint32_t transport_progress_slow(struct transport *transport, bool idle);

/*
 * The same, including everything that transport_progress_slow() does only once in many polls. For
 * use before and after a sleep.
 */
uint32_t transport_progress_full(struct transport *transport);

/*
 * To sleep: begin, call transport_progress_full(), and poll once more. If there was nothing, fill
 * in the words to wait on, sleep without holding a lock, and end. Several threads may do this.
 */
void transport_sleep_begin(struct transport *transport);
/* Returns whether every event ends the sleep. If not, the sleep must be short: sleep_pause(). */
bool transport_sleep_watch(struct transport *transport, struct sleep_watch *watch);
void transport_sleep_end(struct transport *transport);
/* Publish credit to peers that sleep until they get room, and wake them. */
void transport_wake_for_room(struct transport *transport);
/* The maximum length of a sleep, because peers may die. In nanoseconds. */
#define LIVENESS_INTERVAL UINT64_C(50000000)

/*
 * In a forked child: the endpoint belongs to the parent, and all its peers are gone for the child.
 */
void transport_after_fork(struct transport *transport);

/*
 * Check whether peers live, and show that we do. Each call checks some peers, with a bounded number
 * of system calls. See region_liveness.c. Call every LIVENESS_INTERVAL.
 */
void transport_check_peers(struct transport *transport);

/* Is the peer no longer reached through the region, and not yet over the network? */
static inline bool transport_is_failing_over(const struct peer *peer)
{
	return peer->failover == FAILOVER_DRAINING || peer->failover == FAILOVER_ASKING;
}

/*
 * Set the network address of a peer of a region, as the application knows it. This address has
 * priority over the one from the region.
 */
void transport_set_core_address(struct peer *peer, const struct member_core *where);
/*
 * As transport_meet(), for a peer at `where` whose region is unusable and so confirms no member. NULL
 * if the region is usable, or there is no network.
 */
struct peer *transport_meet_without_region(struct transport *transport, uint32_t source, uint32_t epoch,
					   uint64_t nonce, const struct member_core *where);

/* Read the receiver's credit. Returns false if there is still no room for `count` slots. */
bool transport_refresh(struct transport *transport, struct peer *peer, uint32_t count);

/*
 * A chunk for `peer`, after collecting returned chunks if necessary. CHUNK_NONE if there is none.
 */
uint32_t transport_chunk_slow(struct transport *transport, struct peer *peer, uint32_t length);

/* Have all receivers read everything that we sent, or gone? */
bool transport_drained(struct transport *transport);

/* Update the published words that are for people. */
void transport_publish_counts(struct transport *transport);

/*
 * Do we still have our slot in the region that we share with the peer? A virtual machine that was
 * paused for too long may have a successor in its slot, and must not write in the successor's
 * section. It may resume at any point, so this is checked before each message is written or taken.
 * The claim word changes only when the slot gets another owner, so it stays in the cache. A write
 * in progress at the pause is still completed: at most the slots of one message, a chunk, or the
 * control words of a ring that opens or grows.
 */
static inline bool transport_holds_slot(const struct peer *peer)
{
	return __builtin_expect((uint32_t)(shared_load_u64(peer->own_claim) >> 32) == peer->own_tenure, 1);
}

/* The same for one attachment, before rare writes. */
static inline bool attachment_holds_slot(const struct attachment *attachment)
{
	return !attachment->evicted &&
	       member_is_intact(attachment->region, attachment->member->slot, attachment->member->epoch);
}

/* May slots for the peer be written? */
static inline bool transport_may_write(const struct peer *peer)
{
	return transport_holds_slot(peer) || peer->network != NULL;
}

static inline bool transport_room(struct transport *transport, struct peer *peer, uint32_t count)
{
	if (__builtin_expect(!ring_has_room(&peer->out, count) || !transport_may_write(peer), 0))
		return transport_refresh(transport, peer, count);
	transport->next_slot = ring_next(&peer->out, count);
	return true;
}

/*
 * Return a chunk to the peer, some time after the message arrived. The word for this is in our
 * section.
 */
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

/* The receiver polls our ring only from time to time, or sleeps: ring. */
void transport_ring(struct peer *peer);

/* Call after a push: ring if the receiver does not poll our ring at every poll. */
static inline void transport_wake(struct peer *peer)
{
	if (__builtin_expect((shared_load_u64(peer->active_word) & peer->active_bit) == 0, 0))
		transport_ring(peer);
}

/*
 * Handle one slot. Returns the number of slots consumed, TRANSPORT_SWITCHES for the last slot by
 * this transport, or a negative errno for a protocol violation. `control` was loaded once, from the
 * slot at the ring's position. For a ring in a region, TRANSPORT_HOLDS is also possible.
 */
typedef int (*transport_handler)(void *context, struct peer *peer, uint64_t control);

/* The maximum number of slots of one ring in a poll, so that no peer blocks the others. */
#define TRANSPORT_BURST 16U

/* Is the data that was read from this peer's section still the peer's? See member_is_intact(). */
static inline bool transport_intact(const struct peer *peer)
{
	return __builtin_expect(member_claim_is(peer->claim, peer->tenure), 1);
}

/*
 * `length` bytes at `offset` in the memory of the peer's chunks, or NULL if they are not all there.
 */
static inline shared_bytes *transport_view(const struct peer *peer, uint64_t offset, uint64_t length)
{
	if (offset > peer->section_bytes || length > peer->section_bytes - offset)
		return NULL;
	return peer->section + offset;
}

/* The position of `peer`'s hot ring has changed. */
static inline void transport_note_ring(struct transport *transport, const struct peer *peer)
{
	struct hot_ring *ring = &transport->hot[peer->hot_index - 1];

	ring->control = &ring_at(&peer->in, 0)->control;
	ring->lap = (uint32_t)ring_lap(peer->in.position, peer->in.shift);
	ring->active = transport->polls;
}

/*
 * Take slots from one ring, whose first slot has this control word. Returns the number of messages.
 */
static inline __attribute__((always_inline)) uint32_t
transport_drain(struct transport *transport, struct peer *peer, uint64_t control, transport_handler handle)
{
	uint32_t handled = 0;

	do {
		/*
		 * Is the slot for us, or for a member that took our slot? In the latter case,
		 * transport_progress_slow() soon detects that.
		 */
		if (!transport_holds_slot(peer))
			break;
		/* Is the slot from this peer, or from a member that took the peer's slot? */
		if (!transport_intact(peer)) {
			transport_break(transport, peer, -ECONNRESET,
					"it is gone, and another member took its slot");
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
	/* The ring may have left the list. Then another ring has its entry. */
	if (__builtin_expect(peer->hot_index != 0, 1))
		transport_note_ring(transport, peer);
	return handled;
}

/* The short path of progress: poll every hot ring once. Returns the number of messages. */
static inline __attribute__((always_inline)) uint32_t transport_poll(struct transport *transport,
								     transport_handler handle)
{
	uint32_t handled = 0;

	/*
	 * Fetch the line of the next slot to send while the answer is awaited. Not right after a send: the
	 * receiver polls that line, so the copy would have to be invalidated by a send that follows at once:
	 * docs/decisions/0022.
	 */
	if (transport->next_slot != NULL) {
		__builtin_prefetch(transport->next_slot);
		transport->next_slot = NULL;
	}
	for (uint32_t i = 0; i < transport->hot_count; i++) {
		const struct hot_ring *ring = &transport->hot[i];
		/* As ring_peek(): pairs with the release store in ring_push(). */
		uint64_t control = shared_acquire_u64(ring->control);
		if ((control & CONTROL_LAP_MASK) == ring->lap)
			handled += transport_drain(transport, ring->peer, control, handle);
	}
	/*
	 * Doorbells, liveness and cold rings can wait for one poll in 64: reading a line of
	 * doorbells costs a few nanoseconds even if none rang.
	 */
	if (__builtin_expect((++transport->polls & 63) == 0 || transport->attention != 0, 0))
		handled += transport_progress_slow(transport, handled == 0);
	return handled;
}

#endif
