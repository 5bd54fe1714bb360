/* SPDX-License-Identifier: BSD-3-Clause */
/* chunks.c - divides the pool into chunks, and collects returned chunks. */
#include "region/chunks.h"

/* A class with fewer chunks has no reserve: any receiver may take all of them. */
#define RESERVE_MIN 4U

static const uint32_t class_bytes[CHUNK_CLASSES] = {CHUNK_SMALL, CHUNK_MEDIUM, CHUNK_LARGE};

void chunk_untake(struct chunk_pool *pool, uint32_t chunk)
{
	uint32_t index = chunk_class_of(pool, chunk);
	struct chunk_class *class = &pool->classes[index];

	pool->holder[chunk]->outstanding--;
	pool->holder[chunk]->outstanding_of[index]--;
	pool->holder[chunk] = NULL;
	class->free[class->free_count++] = (uint16_t)chunk;
}

static uint32_t open_class(struct chunk_class *class, uint32_t first, uint32_t offset, uint32_t length,
			   uint64_t bytes, uint32_t most)
{
	uint64_t count = bytes / (length + CHUNK_SKEW);

	class->first = first;
	class->offset = offset;
	class->stride = length + CHUNK_SKEW;
	class->count = count < most ? (uint32_t)count : most;
	/*
	 * An eighth. A small class has no reserve, because one chunk would be a large part of the
	 * class.
	 */
	class->reserve = class->count < RESERVE_MIN ? 0 : (class->count + 7) / 8;
	/*
	 * The first chunks are on top of the stack. If less of the region is touched, more of it
	 * stays in the cache.
	 */
	for (uint32_t chunk = first + class->count; chunk-- > first;)
		class->free[class->free_count++] = (uint16_t)chunk;
	return class->count;
}

void chunk_pool_open(struct chunk_pool *pool, const struct region *region, uint32_t slot, uint32_t offset,
		     uint64_t bytes)
{
	/*
	 * The shares of the classes: of the bytes in sixteenths, and of the bits of a credit line.
	 * A pipeline of eight large chunks is a fifth faster than a pipeline of four: see
	 * docs/decisions/0006.
	 */
	static const uint32_t sixteenths[CHUNK_CLASSES] = {3, 2, 11};
	static const uint32_t most[CHUNK_CLASSES] = {REGION_CHUNKS_MAX / 2, REGION_CHUNKS_MAX / 4,
						     REGION_CHUNKS_MAX / 4};

	memset(pool, 0, sizeof(*pool));
	pool->section = section_view(region, slot, 0, section_arena_end(region));
	for (uint32_t i = 0; i < CHUNK_CLASSES; i++) {
		uint64_t share = bytes / 16 * sixteenths[i];
		pool->count +=
			open_class(&pool->classes[i], pool->count, offset, class_bytes[i], share, most[i]);
		offset += pool->classes[i].count * pool->classes[i].stride;
		if (pool->classes[i].count > 0)
			pool->largest = class_bytes[i];
	}
}

size_t chunk_pool_bytes(const uint32_t counts[CHUNK_CLASSES])
{
	size_t bytes = 0;

	for (uint32_t i = 0; i < CHUNK_CLASSES; i++)
		bytes += (size_t)counts[i] * (class_bytes[i] + CHUNK_SKEW);
	return bytes;
}

void chunk_pool_open_private(struct chunk_pool *pool, void *memory, const uint32_t counts[CHUNK_CLASSES])
{
	uint32_t offset = 0;

	memset(pool, 0, sizeof(*pool));
	pool->section = memory;
	for (uint32_t i = 0; i < CHUNK_CLASSES; i++) {
		uint64_t share = (uint64_t)counts[i] * (class_bytes[i] + CHUNK_SKEW);
		pool->count +=
			open_class(&pool->classes[i], pool->count, offset, class_bytes[i], share, counts[i]);
		offset += (uint32_t)share;
		if (counts[i] > 0)
			pool->largest = class_bytes[i];
	}
}

int chunk_collect(struct chunk_pool *pool, struct chunk_account *account)
{
	int collected = 0;

	/* Pairs with the receiver's release store when it accepted the connection. */
	if ((uint32_t)(shared_acquire_u64(&account->credit->consumed) >> 32) != account->connection)
		return 0;
	for (uint32_t word = 0; word * 64 < pool->count; word++) {
		/* Pairs with the release store in chunk_return(). */
		uint64_t now = shared_acquire_u64(&account->credit->returned[word]);
		uint64_t changed = now ^ account->returned[word];

		account->returned[word] = now;
		for (; changed != 0; changed &= changed - 1) {
			uint32_t chunk = word * 64 + (uint32_t)__builtin_ctzll(changed);
			if (chunk >= pool->count || pool->holder[chunk] != account)
				return -1;
			chunk_untake(pool, chunk);
			collected++;
		}
	}
	return collected;
}

void chunk_recall(struct chunk_pool *pool, struct chunk_account *account)
{
	for (uint32_t chunk = 0; chunk < pool->count && account->outstanding > 0; chunk++)
		if (pool->holder[chunk] == account)
			chunk_untake(pool, chunk);
}
