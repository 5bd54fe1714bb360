/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * chunks.h - pieces of our own section that we give to receivers, one message or part of
 * a message in each.
 *
 * All bookkeeping is private. A chunk comes back when the receiver flips its bit in the
 * credit line that it keeps for us; we read that line only when we want chunks.
 */
#ifndef VICINAL_REGION_CHUNKS_H
#define VICINAL_REGION_CHUNKS_H

#include "region/region.h"

/*
 * Three sizes. Small ones hold eager messages, so that many can wait unexpected; medium
 * ones the pieces that show a large message; large ones are the pipeline's stages: the
 * longer a copy, the faster a byte of it goes. Measured: see docs/decisions/0001.
 */
#define CHUNK_SMALL 4096U
#define CHUNK_MEDIUM 16384U
#define CHUNK_LARGE 65536U
#define CHUNK_CLASSES 3U
#define CHUNK_CLASS_LARGE (CHUNK_CLASSES - 1)

/*
 * Bytes lie in a chunk at the same offset from a line as in the application's buffer:
 * copies between equally aligned places are some 5 % faster. So a chunk has a line more.
 */
#define CHUNK_SKEW REGION_LINE

#define CHUNK_NONE UINT32_MAX
#define CHUNK_WORDS (REGION_CHUNKS_MAX / 64)

/* The owner's private account with one holder. */
struct chunk_account {
	const struct credit_line *credit;
	uint32_t connection;                    /* the line is ours when it carries this id */
	uint32_t outstanding;                   /* chunks out */
	uint32_t outstanding_of[CHUNK_CLASSES]; /* of each class */
	uint32_t taken_count;                   /* chunks ever taken, modulo 2^32 */
	uint32_t taken_at_reclaim;              /* its value when the holder was last asked for them */
	uint64_t returned[CHUNK_WORDS];         /* the bits as last seen */
};

struct chunk_class {
	uint32_t first; /* chunks [first, first + count) are of this class */
	uint32_t count;
	uint32_t stride;                  /* bytes from one to the next */
	uint32_t offset;                  /* section offset of the first */
	uint32_t reserve;                 /* so many are left to those that have none of them */
	uint32_t free_count;              /* entries in use of `free` */
	uint16_t free[REGION_CHUNKS_MAX]; /* a stack: the chunk given back last is still in cache */
};

struct chunk_pool {
	shared_bytes *section; /* our own */
	uint32_t count;
	uint32_t largest; /* bytes that the largest chunk holds: a small section has no large ones */
	struct chunk_class classes[CHUNK_CLASSES];
	struct chunk_account *holder[REGION_CHUNKS_MAX]; /* NULL while it is ours */
};

/* Divide `bytes` at section offset `offset` of our own section up into chunks. */
void chunk_pool_open(struct chunk_pool *pool, const struct region *region, uint32_t slot, uint32_t offset,
		     uint64_t bytes);

/* The same with private memory, in so many chunks of each class. It takes chunk_pool_bytes(). */
void chunk_pool_open_private(struct chunk_pool *pool, void *memory, const uint32_t counts[CHUNK_CLASSES]);
size_t chunk_pool_bytes(const uint32_t counts[CHUNK_CLASSES]);

static inline uint32_t chunk_class_for(uint32_t length)
{
	return length <= CHUNK_SMALL ? 0 : length <= CHUNK_MEDIUM ? 1 : 2;
}

static inline uint32_t chunk_class_of(const struct chunk_pool *pool, uint32_t chunk)
{
	return chunk < pool->classes[1].first ? 0 : chunk < pool->classes[2].first ? 1 : 2;
}

/*
 * Take a chunk of at least `length` bytes (at most CHUNK_LARGE) for `account`.
 * Returns CHUNK_NONE when there is none; ask again after chunk_collect(). The last few of each class
 * are for those that have none: one that does not give back takes nobody's room.
 */
static inline uint32_t chunk_take(struct chunk_pool *pool, struct chunk_account *account, uint32_t length)
{
	for (uint32_t i = chunk_class_for(length); i < CHUNK_CLASSES; i++) {
		struct chunk_class *class = &pool->classes[i];
		if (__builtin_expect(class->free_count <= class->reserve, 0) &&
		    (class->free_count == 0 || account->outstanding_of[i] != 0))
			continue;
		uint32_t chunk = class->free[--class->free_count];
		pool->holder[chunk] = account;
		account->outstanding++;
		account->outstanding_of[i]++;
		account->taken_count++;
		return chunk;
	}
	return CHUNK_NONE;
}

/* The section offset at which the bytes of `buffer` go in a chunk. */
static inline uint32_t chunk_offset(const struct chunk_pool *pool, uint32_t chunk, const void *buffer)
{
	const struct chunk_class *class = &pool->classes[chunk_class_of(pool, chunk)];

	return class->offset + (chunk - class->first) * class->stride +
	       (uint32_t)((uintptr_t)buffer % CHUNK_SKEW);
}

/* A chunk that was taken but not shown to its holder after all. */
void chunk_untake(struct chunk_pool *pool, uint32_t chunk);

/*
 * Take back what the holder returned. Returns how many, or -1 if it returned a chunk
 * that it does not have: a violation.
 */
int chunk_collect(struct chunk_pool *pool, struct chunk_account *account);

/* Take back everything, whatever the holder says: it is dead, or its connection is closed. */
void chunk_recall(struct chunk_pool *pool, struct chunk_account *account);

/* A holder's private side: the bits as it last wrote them. */
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
