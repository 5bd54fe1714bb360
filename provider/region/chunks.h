/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * chunks.h - pieces of our own section that we lend to receivers, one message or part of
 * a message in each.
 *
 * All bookkeeping is private. A chunk comes back when the receiver flips its bit in the
 * credit line that it keeps for us; we read that line only when we want chunks.
 */
#ifndef VICINAL_REGION_CHUNKS_H
#define VICINAL_REGION_CHUNKS_H

#include "region/region.h"

/*
 * Two sizes. Small ones hold eager messages, so that many can wait unexpected; large ones
 * are the pipeline's stages. Measured: see docs/performance.md.
 */
#define CHUNK_SMALL 2048U
#define CHUNK_LARGE 16384U

#define CHUNK_NONE UINT32_MAX
#define CHUNK_WORDS (REGION_CHUNKS_MAX / 64)

/* The lender's private account with one borrower. */
struct chunk_account {
	const struct credit_line *credit;
	uint32_t connection;            /* the line is ours when it carries this id */
	uint32_t lent;                  /* chunks out */
	uint32_t lent_count;            /* chunks ever lent, modulo 2^32 */
	uint32_t lent_reclaimed;        /* its value when the borrower was last asked for them */
	uint64_t returned[CHUNK_WORDS]; /* the bits as last seen */
};

struct chunk_pool {
	shared_bytes *base;   /* the first chunk */
	uint32_t base_offset; /* its section offset */
	uint32_t small_count; /* chunks [0, small_count) are small, the others large */
	uint32_t count;
	uint32_t small_free; /* entries in use of free_small */
	uint32_t large_free;
	uint16_t free_small[REGION_CHUNKS_MAX]; /* stacks: the chunk given back last is still in cache */
	uint16_t free_large[REGION_CHUNKS_MAX];
	struct chunk_account *borrower[REGION_CHUNKS_MAX]; /* NULL while it is ours */
};

/* Divide `bytes` at section offset `offset` of our own section up into chunks. */
void chunk_pool_open(struct chunk_pool *pool, const struct region *region, uint32_t slot, uint32_t offset,
		     uint64_t bytes);

/*
 * Take a chunk of at least `length` bytes (at most CHUNK_LARGE) for `account`.
 * Returns CHUNK_NONE when there is none; ask again after chunk_collect().
 */
static inline uint32_t chunk_take(struct chunk_pool *pool, struct chunk_account *account, uint32_t length)
{
	uint32_t chunk = CHUNK_NONE;

	if (length <= CHUNK_SMALL && pool->small_free > 0)
		chunk = pool->free_small[--pool->small_free];
	else if (pool->large_free > 0)
		chunk = pool->free_large[--pool->large_free];
	else
		return CHUNK_NONE;
	pool->borrower[chunk] = account;
	account->lent++;
	account->lent_count++;
	return chunk;
}

static inline uint32_t chunk_offset_from_base(const struct chunk_pool *pool, uint32_t chunk)
{
	if (chunk < pool->small_count)
		return chunk * CHUNK_SMALL;
	return pool->small_count * CHUNK_SMALL + (chunk - pool->small_count) * CHUNK_LARGE;
}

static inline shared_bytes *chunk_bytes(const struct chunk_pool *pool, uint32_t chunk)
{
	return pool->base + chunk_offset_from_base(pool, chunk);
}

static inline uint32_t chunk_section_offset(const struct chunk_pool *pool, uint32_t chunk)
{
	return pool->base_offset + chunk_offset_from_base(pool, chunk);
}

/* A chunk that was taken but not shown to its borrower after all. */
void chunk_untake(struct chunk_pool *pool, uint32_t chunk);

/*
 * Take back what the borrower returned. Returns how many, or -1 if it returned a chunk
 * that it does not have: a violation.
 */
int chunk_collect(struct chunk_pool *pool, struct chunk_account *account);

/* Take back everything, whatever the borrower says: it is dead, or its path is closed. */
void chunk_recall(struct chunk_pool *pool, struct chunk_account *account);

/* A borrower's private side: the bits as it last wrote them. */
struct chunk_returns {
	struct credit_line *credit;
	uint64_t returned[CHUNK_WORDS];
};

/*
 * Give chunk `chunk` (below REGION_CHUNKS_MAX) back. The release store pairs with the
 * acquire load in chunk_collect(): we have read it before its owner writes it again.
 */
static inline void chunk_return(struct chunk_returns *returns, uint32_t chunk)
{
	uint64_t word = returns->returned[chunk / 64] ^ UINT64_C(1) << chunk % 64;

	returns->returned[chunk / 64] = word;
	shared_release_u64(&returns->credit->returned[chunk / 64], word);
}

#endif
