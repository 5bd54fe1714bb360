/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ring.h - the single-producer single-consumer ring between one sender and one receiver.
 *
 *      sender's section                        receiver's section
 *   ┌──────┬──────┬──────┬──────┐           ┌───────────────────────┐
 *   │ slot │ slot │ slot │ slot │ ...       │ credit line: consumed │
 *   └──────┴──────┴──────┴──────┘           └───────────────────────┘
 *   written only by the sender              written only by the receiver
 *
 * A message is new if its slot's lap is the receiver's lap. The receiver needs no head index, so a
 * message costs the transfer of one line. The sender learns of free slots from the credit line,
 * which it reads only when it has used up the free slots that it knows. Both sides keep their
 * positions in private memory and never read their own words back.
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
	uint32_t published; /* the position that was last sent to the sender */
	uint32_t batch;     /* publish the position after this many slots */
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
		/*
		 * A quarter of the ring: the line moves to the sender rarely, but is written before
		 * the sender runs out of slots.
		 */
		.batch = count / 4,
		.connection = connection,
	};
}

enum ring_credit_result { RING_CREDIT_OK, RING_CREDIT_VIOLATION, RING_CREDIT_CLOSED };

/*
 * Connection ids are odd. A receiver that no longer reads the ring writes the id without that bit.
 */
#define CONNECTION_OPEN UINT32_C(1)

/*
 * Read the receiver's credit. Acquire: pairs with the release store in ring_publish(), so the
 * receiver has read the slots that it counts. A count that is impossible for this ring is a
 * violation.
 */
static inline enum ring_credit_result ring_credit(struct ring_out *ring)
{
	uint64_t word = shared_acquire_u64(&ring->credit->consumed);
	uint32_t consumed = (uint32_t)word;

	if ((uint32_t)(word >> 32) == (ring->connection & ~CONNECTION_OPEN))
		return RING_CREDIT_CLOSED;
	if ((uint32_t)(word >> 32) != ring->connection)
		return RING_CREDIT_OK; /* not accepted yet: the line of a former sender */
	if (ring->position - consumed > ring->mask + 1)
		return RING_CREDIT_VIOLATION;
	ring->limit = consumed + ring->mask + 1;
	return RING_CREDIT_OK;
}

/* May `count` more slots be written, according to the last known credit? */
static inline bool ring_has_room(const struct ring_out *ring, uint32_t count)
{
	return ring->limit - ring->position >= count;
}

/* The slot `ahead` slots after the position. Call ring_has_room() first. */
static inline struct ring_slot *ring_next(const struct ring_out *ring, uint32_t ahead)
{
	return &ring->slots[(ring->position + ahead) & ring->mask];
}

/*
 * The first position of a ring in a region. The upper half of the connection's random id gives its
 * lap. So a slot of another connection, which a member wrote or reads whose slot was taken while it
 * was paused, has another lap, except in one case of 65536.
 */
static inline uint32_t ring_first_position(uint32_t connection, uint32_t shift)
{
	return connection >> 16 << shift;
}

/*
 * Write the lap before its next one into each of `count` slots, for a ring whose first slot has this
 * position. The receiver does not know these slots yet.
 */
static inline void ring_clear(struct ring_slot *slots, uint32_t count, uint32_t position)
{
	uint32_t shift = (uint32_t)__builtin_ctz(count);

	for (uint32_t ahead = 0; ahead < count; ahead++)
		shared_store_u64(&slots[(position + ahead) & (count - 1)].control,
				 (ring_lap(position + ahead, shift) - 1) & CONTROL_LAP_MASK);
}

static inline void ring_out_begin(struct ring_out *ring)
{
	ring->position = ring_first_position(ring->connection, ring->shift);
	ring->limit = ring->position + ring->mask + 1;
	ring_clear(ring->slots, ring->mask + 1, ring->position);
}

static inline void ring_in_begin(struct ring_in *ring)
{
	ring->position = ring_first_position(ring->connection, ring->shift);
	ring->published = ring->position;
}

/*
 * Slots that were written and, according to the last known credit, not yet read.
 */
static inline uint32_t ring_unread(const struct ring_out *ring)
{
	return ring->mask + 1 - (ring->limit - ring->position);
}

/*
 * Go on in other slots, which ring_clear() prepared for this position. Positions and credit go on as
 * they are, so there must be no more unread slots than `count`, in both memories together.
 */
static inline void ring_out_move(struct ring_out *ring, struct ring_slot *slots, uint32_t count)
{
	ring->limit += count - (ring->mask + 1);
	ring->slots = slots;
	ring->mask = count - 1;
	ring->shift = (uint32_t)__builtin_ctz(count);
}

/* The slots behind the one at the position, which says so, are in other memory. */
static inline void ring_in_move(struct ring_in *ring, const struct ring_slot *slots, uint32_t count)
{
	ring->slots = slots;
	ring->mask = count - 1;
	ring->shift = (uint32_t)__builtin_ctz(count);
	ring->batch = count / 4;
}

/*
 * Write the control word of a later slot of the same message, `ahead` slots after the position. It
 * is not yet visible to the receiver.
 */
static inline void ring_stage(const struct ring_out *ring, uint32_t ahead, uint64_t control)
{
	shared_store_u64(&ring_next(ring, ahead)->control,
			 control | ring_lap(ring->position + ahead, ring->shift));
}

/*
 * Make the slot at the position visible, and with it `count` slots in all. The release store pairs
 * with the acquire load in ring_peek().
 */
static inline void ring_push(struct ring_out *ring, uint64_t control, uint32_t count)
{
	shared_release_u64(&ring_next(ring, 0)->control, control | ring_lap(ring->position, ring->shift));
	ring->position += count;
}

/* Is there a new slot at the position? Loads its control word once, into `control`. */
static inline bool ring_peek(const struct ring_in *ring, uint64_t *control)
{
	*control = shared_acquire_u64(&ring->slots[ring->position & ring->mask].control);
	return (*control & CONTROL_LAP_MASK) == ring_lap(ring->position, ring->shift);
}

/*
 * Does the slot at the position have this lap or the last? The short path takes any other lap for
 * an empty slot, and would wait for ever: a process overwrote the slot, or made the sender write
 * slots that are not yet read. Call from time to time.
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

/* Publish the position to the sender. Pairs with the acquire load in ring_credit(). */
static inline void ring_publish(struct ring_in *ring)
{
	shared_release_u64(&ring->credit->consumed, (uint64_t)ring->connection << 32 | ring->position);
	ring->published = ring->position;
}

/*
 * Tell the sender of this connection that the receiver does not read its ring, or no longer reads
 * it.
 */
static inline void ring_refuse(struct credit_line *credit, uint32_t connection)
{
	shared_release_u64(&credit->consumed, (uint64_t)(connection & ~CONNECTION_OPEN) << 32);
}

/* The receiver is done with `count` slots. */
static inline void ring_consume(struct ring_in *ring, uint32_t count)
{
	ring->position += count;
	if (ring->position - ring->published >= ring->batch)
		ring_publish(ring);
}

#endif
