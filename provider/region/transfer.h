/* SPDX-License-Identifier: BSD-3-Clause */
/* transfer.h - the lines that coordinate the two ends of a single copy in the region. */
#ifndef VICINAL_REGION_TRANSFER_H
#define VICINAL_REGION_TRANSFER_H

#include "region/region.h"

/* A transfer's id. Never 0, because generations count from 1. */
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
 * `length` bytes at `offset` in the heap of a member's section, the only place for buffers. NULL
 * unless all of them lie there. Both numbers may come from a peer.
 */
static inline shared_bytes *transfer_view(const struct region *region, uint32_t slot, uint64_t offset,
					  uint64_t length)
{
	return offset < section_arena_end(region) ? NULL : section_view(region, slot, offset, length);
}

/* The words of a line, except its id. */
struct transfer_words {
	uint64_t claimed;
	uint64_t done;
	uint64_t offset;
	uint64_t peer; /* epoch << 32 | slot */
};

static inline void transfer_open(struct transfer_line *line, uint32_t id, const struct transfer_words *words)
{
	/*
	 * A reader that loads one of these words then finds that the former transfer's id is gone:
	 * see transfer_read().
	 */
	shared_fence_stores();
	shared_store_u64(&line->offset, words->offset);
	shared_store_u64(&line->peer, words->peer);
	shared_store_u64(&line->claimed, words->claimed);
	shared_store_u64(&line->done, words->done);
	shared_release_u64(&line->id, id);
}

/*
 * The sender's buffer in its heap. NULL if the sender says that it is elsewhere, or names an
 * impossible range.
 */
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

/*
 * Call before the bytes are copied. The caller then calls transfer_fence() and loads the other
 * end's line.
 */
static inline void transfer_claim(struct transfer_line *line, uint64_t claimed)
{
	shared_store_u64(&line->claimed, claimed);
}

/* Call after the bytes are copied. Pairs with the acquire load in transfer_read(). */
static inline void transfer_done(struct transfer_line *line, uint64_t done)
{
	shared_release_u64(&line->done, done);
}

/* All members see our claim before we load the other end's. (See shared_fence_loads().) */
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
 * Load the other end's words. `done` is loaded first, because `claimed` already covers it. Acquire:
 * the bytes that are done are visible. Returns false if the line no longer belongs to transfer
 * `id`, as it did when the caller learned of it. The id is loaded last, so that these are not the
 * words of a later transfer.
 */
static inline bool transfer_read(const struct transfer_line *line, uint32_t id, uint64_t *claimed,
				 uint64_t *done)
{
	*done = shared_acquire_u64(&line->done);
	*claimed = shared_acquire_u64(&line->claimed);
	return shared_acquire_u64(&line->id) == id;
}

#endif
