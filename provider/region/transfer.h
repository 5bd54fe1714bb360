/* SPDX-License-Identifier: BSD-3-Clause */
/* transfer.h - the lines by which the two ends of one copy in the region find each other. */
#ifndef VICINAL_REGION_TRANSFER_H
#define VICINAL_REGION_TRANSFER_H

#include "region/region.h"

/* A transfer's id: never 0, since generations count from 1. */
static inline uint32_t transfer_id(uint32_t index, uint32_t generation)
{
	return index | generation << 8;
}

static inline uint32_t transfer_index(uint32_t id)
{
	return id & 0xff;
}

_Static_assert(REGION_TRANSFERS <= 256, "an index has 8 bits");

/*
 * `length` bytes at `offset` in the heap of a member's section, where alone buffers can be; NULL
 * if they are not wholly there. Both may come from a peer.
 */
static inline shared_bytes *transfer_view(const struct region *region, uint32_t slot, uint64_t offset,
					  uint64_t length)
{
	return offset < section_arena_end(region) ? NULL : section_view(region, slot, offset, length);
}

/* The words of a line that are not its id. */
struct transfer_words {
	uint64_t claimed;
	uint64_t done;
	uint64_t offset;
	uint64_t peer; /* epoch << 32 | slot */
};

static inline void transfer_open(struct transfer_line *line, uint32_t id, const struct transfer_words *words)
{
	/* Who loads one of these finds the id of the former transfer gone: see transfer_read(). */
	shared_fence_stores();
	shared_store_u64(&line->offset, words->offset);
	shared_store_u64(&line->peer, words->peer);
	shared_store_u64(&line->claimed, words->claimed);
	shared_store_u64(&line->done, words->done);
	shared_release_u64(&line->id, id);
}

/* The sender's buffer in its heap; NULL if it says that it is elsewhere, or nothing that can be. */
static inline shared_bytes *transfer_source(const struct region *region, uint32_t sender, uint32_t id,
					    uint64_t length)
{
	const struct transfer_line *line = section_transfer(region, sender, transfer_index(id));
	/* Pairs with the release store in transfer_open(). */
	bool open = shared_acquire_u64(&line->id) == id;

	return open ? transfer_view(region, sender, shared_load_u64(&line->offset), length) : NULL;
}

static inline void transfer_close(struct transfer_line *line)
{
	shared_release_u64(&line->id, 0);
}

/* Before bytes are copied. The caller loads the other's line next: see transfer_fence(). */
static inline void transfer_claim(struct transfer_line *line, uint64_t claimed)
{
	shared_store_u64(&line->claimed, claimed);
}

/* After they are. Pairs with the acquire load in transfer_read(). */
static inline void transfer_done(struct transfer_line *line, uint64_t done)
{
	shared_release_u64(&line->done, done);
}

/* Our claim is seen by everybody before we look at the other's. (See shared_fence_loads().) */
static inline void transfer_fence(void)
{
#ifdef __SANITIZE_THREAD__
	static _Atomic uint32_t nothing;
	(void)atomic_fetch_add_explicit(&nothing, 1, memory_order_seq_cst);
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

/*
 * The other's words. `done` first: what it had done is in its `claimed` already. Acquire: the
 * bytes that it has done are there. False if the line is not that of transfer `id` any more; it
 * was, when the caller was told of it. The id last, so that these are not the words of a later
 * transfer.
 */
static inline bool transfer_read(const struct transfer_line *line, uint32_t id, uint64_t *claimed,
				 uint64_t *done)
{
	*done = shared_acquire_u64(&line->done);
	*claimed = shared_acquire_u64(&line->claimed);
	return shared_acquire_u64(&line->id) == id;
}

#endif
