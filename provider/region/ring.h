/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ring.h - the single-producer single-consumer ring between one sender and one receiver.
 *
 *      sender's section                        receiver's section
 *   ┌──────┬──────┬──────┬──────┐           ┌───────────────────────┐
 *   │ slot │ slot │ slot │ slot │ ...       │ credit line: consumed │
 *   └──────┴──────┴──────┴──────┘           └───────────────────────┘
 *   written by the sender alone             written by the receiver alone
 *
 * A message is new when its slot's lap is the receiver's lap: the receiver needs no head
 * index and so a message costs the transfer of one line. The sender learns of free slots
 * from the credit line, which it reads only when those that it knows of are used up.
 * Both sides keep their positions in private memory and never read their own words back.
 */
#ifndef VICINAL_REGION_RING_H
#define VICINAL_REGION_RING_H

#include "region/layout.h"

#define CONTROL_LAP_MASK 0xffffU

/* lap | kind << 16 | flags << 24 | length << 32 */
static inline uint64_t control_word(uint32_t kind, uint32_t flags, uint32_t length)
{
	return (uint64_t)kind << 16 | (uint64_t)flags << 24 | (uint64_t)length << 32;
}

static inline uint32_t control_kind(uint64_t control)
{
	return (uint32_t)(control >> 16) & 0xff;
}

static inline uint32_t control_flags(uint64_t control)
{
	return (uint32_t)(control >> 24) & 0xff;
}

static inline uint32_t control_length(uint64_t control)
{
	return (uint32_t)(control >> 32);
}

/* The sender's private side. Positions count slots modulo 2^32. */
struct ring_out {
	struct ring_slot *slots;
	const struct credit_line *credit;
	uint32_t mask;
	uint32_t shift;
	uint32_t position; /* the next slot to write */
	uint32_t limit;    /* slots before this one may be written */
	uint32_t connection;
};

/* The receiver's private side. */
struct ring_in {
	const struct ring_slot *slots;
	struct credit_line *credit;
	uint32_t mask;
	uint32_t shift;
	uint32_t position;  /* the next slot to read */
	uint32_t published; /* what the sender was told */
	uint32_t batch;     /* tell it again after this many slots */
	uint32_t connection;
};

static inline uint64_t ring_lap(uint32_t position, uint32_t shift)
{
	return ((position >> shift) + 1) & CONTROL_LAP_MASK;
}

static inline void ring_out_open(struct ring_out *ring, struct ring_slot *slots, uint32_t count,
				 const struct credit_line *credit, uint32_t connection)
{
	*ring = (struct ring_out){
		.slots = slots,
		.credit = credit,
		.mask = count - 1,
		.shift = (uint32_t)__builtin_ctz(count),
		.limit = count,
		.connection = connection,
	};
}

static inline void ring_in_open(struct ring_in *ring, const struct ring_slot *slots, uint32_t count,
				struct credit_line *credit, uint32_t connection)
{
	*ring = (struct ring_in){
		.slots = slots,
		.credit = credit,
		.mask = count - 1,
		.shift = (uint32_t)__builtin_ctz(count),
		/* A quarter: the sender meets the line seldom, and never runs dry before it is written. */
		.batch = count / 4,
		.connection = connection,
	};
}

enum ring_credit_result { RING_CREDIT_OK, RING_CREDIT_VIOLATION, RING_CREDIT_CLOSED };

/* Ids are odd. A receiver that reads the ring no more writes its id without that bit. */
#define CONNECTION_OPEN UINT32_C(1)

/*
 * Read the receiver's credit. Pairs with its release store in ring_publish(): the slots
 * it counts were read before. A count that the ring cannot have is a violation.
 */
static inline enum ring_credit_result ring_credit(struct ring_out *ring)
{
	uint64_t word = shared_acquire_u64(&ring->credit->consumed);
	uint32_t consumed = (uint32_t)word;

	if ((uint32_t)(word >> 32) == (ring->connection & ~CONNECTION_OPEN))
		return RING_CREDIT_CLOSED;
	if ((uint32_t)(word >> 32) != ring->connection)
		return RING_CREDIT_OK; /* not accepted yet: a former sender's line */
	if (ring->position - consumed > ring->mask + 1)
		return RING_CREDIT_VIOLATION;
	ring->limit = consumed + ring->mask + 1;
	return RING_CREDIT_OK;
}

/* May `count` more slots be written, as far as we know without asking? */
static inline bool ring_has_room(const struct ring_out *ring, uint32_t count)
{
	return ring->limit - ring->position >= count;
}

/* The slot `ahead` of the position. ring_has_room() covers it. */
static inline struct ring_slot *ring_next(const struct ring_out *ring, uint32_t ahead)
{
	return &ring->slots[(ring->position + ahead) & ring->mask];
}

/*
 * Where positions of a ring in a region begin: the upper half of the connection's random id says at which
 * lap. So what somebody writes or reads there for another connection, a member whose slot was taken while it
 * was paused, has another lap, but for one case in 65536.
 */
static inline uint32_t ring_first_position(uint32_t connection, uint32_t shift)
{
	return connection >> 16 << shift;
}

/* Each slot gets the lap before the first. The connection is not offered yet. */
static inline void ring_out_begin(struct ring_out *ring)
{
	ring->position = ring_first_position(ring->connection, ring->shift);
	ring->limit = ring->position + ring->mask + 1;
	for (uint32_t ahead = 0; ahead <= ring->mask; ahead++)
		shared_store_u64(&ring_next(ring, ahead)->control,
				 (ring_lap(ring->position, ring->shift) - 1) & CONTROL_LAP_MASK);
}

static inline void ring_in_begin(struct ring_in *ring)
{
	ring->position = ring_first_position(ring->connection, ring->shift);
	ring->published = ring->position;
}

/* Write the control word of the slot `ahead` that only follows another: not yet visible. */
static inline void ring_stage(const struct ring_out *ring, uint32_t ahead, uint64_t control)
{
	shared_store_u64(&ring_next(ring, ahead)->control,
			 control | ring_lap(ring->position + ahead, ring->shift));
}

/*
 * Make the slot at the position visible, and `count` slots with it. The release store
 * pairs with the acquire load in ring_peek().
 */
static inline void ring_push(struct ring_out *ring, uint64_t control, uint32_t count)
{
	shared_release_u64(&ring_next(ring, 0)->control, control | ring_lap(ring->position, ring->shift));
	ring->position += count;
	/* The receiver has the next line in its cache from its last lap: fetch it before it is needed. */
	__builtin_prefetch(ring_next(ring, 0), 1);
}

/* Is there a new slot at the position? Its control word is loaded once, into `control`. */
static inline bool ring_peek(const struct ring_in *ring, uint64_t *control)
{
	*control = shared_acquire_u64(&ring->slots[ring->position & ring->mask].control);
	return (*control & CONTROL_LAP_MASK) == ring_lap(ring->position, ring->shift);
}

/*
 * Is the slot at the position of this lap, or still of the last? The short path takes any other for
 * empty, and would wait for ever: somebody wrote over it, or made the sender write where we have not
 * read. For now and then.
 */
static inline bool ring_is_sound(const struct ring_in *ring)
{
	uint64_t control = shared_acquire_u64(&ring->slots[ring->position & ring->mask].control);
	uint64_t ahead = ring_lap(ring->position, ring->shift) - control;

	return (ahead & CONTROL_LAP_MASK) <= 1;
}

static inline const struct ring_slot *ring_at(const struct ring_in *ring, uint32_t ahead)
{
	return &ring->slots[(ring->position + ahead) & ring->mask];
}

/* Tell the sender. Pairs with the acquire load in ring_credit(). */
static inline void ring_publish(struct ring_in *ring)
{
	shared_release_u64(&ring->credit->consumed, (uint64_t)ring->connection << 32 | ring->position);
	ring->published = ring->position;
}

/* Tell the sender of this connection that nobody reads its ring, or not any more. */
static inline void ring_refuse(struct credit_line *credit, uint32_t connection)
{
	shared_release_u64(&credit->consumed, (uint64_t)(connection & ~CONNECTION_OPEN) << 32);
}

/* The receiver has done with `count` slots. */
static inline void ring_consume(struct ring_in *ring, uint32_t count)
{
	ring->position += count;
	if (ring->position - ring->published >= ring->batch)
		ring_publish(ring);
}

#endif
