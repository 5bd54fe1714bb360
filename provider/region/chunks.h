/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * chunks.h - pieces of a member's own section, each of which carries one message or part of a
 * message to a receiver.
 *
 * All bookkeeping is private. To return a chunk, the receiver flips the chunk's bit in the credit
 * line that the receiver keeps for this sender. The sender reads that line only when it needs
 * chunks.
 */
#ifndef VICINAL_REGION_CHUNKS_H
#define VICINAL_REGION_CHUNKS_H

#include "region/region.h"

/*
 * Small chunks hold eager messages, so that many can wait unexpected. Medium chunks hold the pieces
 * that announce a large message. Large chunks are the stages of the pipeline: the longer a copy,
 * the less a byte of it costs. The sizes were measured: see docs/decisions/0001.
 */
#define CHUNK_SMALL 4096U
#define CHUNK_MEDIUM 16384U
#define CHUNK_LARGE 65536U
#define CHUNK_CLASSES 3U
#define CHUNK_CLASS_LARGE (CHUNK_CLASSES - 1)

/*
 * In a chunk, bytes have the same offset from the start of a cache line as in the application's
 * buffer: copies between equally aligned addresses are about 5 % faster. So each chunk has an
 * additional line.
 */
#define CHUNK_SKEW REGION_LINE

#define CHUNK_NONE UINT32_MAX
#define CHUNK_WORDS (REGION_CHUNKS_MAX / 64)

/* The owner's private account of one receiver, the holder of chunks. */
struct chunk_account {
	const struct credit_line *credit;
	uint32_t connection;                    /* the line is valid for this sender if it carries this id */
	uint32_t outstanding;                   /* chunks that the holder has */
	uint32_t outstanding_of[CHUNK_CLASSES]; /* of each class */
	uint32_t taken_count;                   /* chunks ever taken, modulo 2^32 */
	uint32_t taken_at_reclaim; /* value of taken_count when the holder was last asked to return chunks */
	uint64_t returned[CHUNK_WORDS]; /* the bits as last read */
};

struct chunk_class {
	uint32_t first; /* chunks [first, first + count) are of this class */
	uint32_t count;
	uint32_t stride;     /* bytes from one chunk to the next */
	uint32_t offset;     /* section offset of the first chunk */
	uint32_t reserve;    /* the last chunks, kept for receivers that have none of this class */
	uint32_t free_count; /* used entries of `free` */
	uint16_t
		free[REGION_CHUNKS_MAX]; /* a stack: the chunk that was returned last is still in the cache */
};

struct chunk_pool {
	shared_bytes *section; /* this member's own */
	uint32_t count;
	uint32_t largest; /* bytes that the largest chunk holds; a small section has no large chunks */
	struct chunk_class classes[CHUNK_CLASSES];
	struct chunk_account *holder[REGION_CHUNKS_MAX]; /* NULL while no receiver has the chunk */
};

/* Divide `bytes` bytes at section offset `offset` of this member's section into chunks. */
void chunk_pool_open(struct chunk_pool *pool, const struct region *region, uint32_t slot, uint32_t offset,
		     uint64_t bytes);

/*
 * The same in private memory of chunk_pool_bytes() bytes, with the given number of chunks of each
 * class.
 */
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
 * Take a chunk of at least `length` bytes (at most CHUNK_LARGE) for `account`. Returns CHUNK_NONE
 * if there is none; ask again after chunk_collect(). The reserve of each class is for receivers
 * that have no chunk of the class: a receiver that returns nothing cannot take the room of other
 * receivers.
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

/* The section offset at which the bytes of `buffer` lie in a chunk. */
static inline uint32_t chunk_offset(const struct chunk_pool *pool, uint32_t chunk, const void *buffer)
{
	const struct chunk_class *class = &pool->classes[chunk_class_of(pool, chunk)];

	return class->offset + (chunk - class->first) * class->stride +
	       (uint32_t)((uintptr_t)buffer % CHUNK_SKEW);
}

/* Free a chunk that was taken but never shown to its holder. */
void chunk_untake(struct chunk_pool *pool, uint32_t chunk);

/*
 * Collect the chunks that the holder returned. Returns their number, or -1 if the holder returned a
 * chunk that it does not have: a protocol violation.
 */
int chunk_collect(struct chunk_pool *pool, struct chunk_account *account);

/*
 * Take all chunks back, whatever the holder says: the holder is dead, or its connection is closed.
 */
void chunk_recall(struct chunk_pool *pool, struct chunk_account *account);

/* A holder's private side: the bits as the holder last wrote them. */
struct chunk_returns {
	struct credit_line *credit;
	uint64_t returned[CHUNK_WORDS];
};

/*
 * Return chunk `chunk` (below REGION_CHUNKS_MAX). The release store pairs with the acquire load in
 * chunk_collect(): the holder has read the chunk before its owner writes it again.
 */
static inline void chunk_return(struct chunk_returns *returns, uint32_t chunk)
{
	uint64_t word = returns->returned[chunk / 64] ^ UINT64_C(1) << chunk % 64;

	returns->returned[chunk / 64] = word;
	shared_release_u64(&returns->credit->returned[chunk / 64], word);
}

#endif
