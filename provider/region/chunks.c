/* SPDX-License-Identifier: BSD-3-Clause */
/* chunks.c - dividing up the pool, and getting chunks back. */
#include "region/chunks.h"

void chunk_untake(struct chunk_pool *pool, uint32_t chunk)
{
	pool->borrower[chunk]->lent--;
	pool->borrower[chunk] = NULL;
	if (chunk < pool->small_count)
		pool->free_small[pool->small_free++] = (uint16_t)chunk;
	else
		pool->free_large[pool->large_free++] = (uint16_t)chunk;
}

void chunk_pool_open(struct chunk_pool *pool, const struct region *region, uint32_t slot, uint32_t offset,
		     uint64_t bytes)
{
	/* A quarter of the bytes for small chunks, within what the bits of a credit line can name. */
	uint64_t small = bytes / 4 / CHUNK_SMALL;
	if (small > REGION_CHUNKS_MAX / 2)
		small = REGION_CHUNKS_MAX / 2;
	uint64_t large = (bytes - small * CHUNK_SMALL) / CHUNK_LARGE;
	if (large > REGION_CHUNKS_MAX / 2)
		large = REGION_CHUNKS_MAX / 2;

	memset(pool, 0, sizeof(*pool));
	pool->base = section_view(region, slot, offset, bytes);
	pool->base_offset = offset;
	pool->small_count = (uint32_t)small;
	pool->count = (uint32_t)(small + large);
	/* The first ones on top: the less of the region is touched, the more stays in cache. */
	for (uint32_t chunk = pool->small_count; chunk-- > 0;)
		pool->free_small[pool->small_free++] = (uint16_t)chunk;
	for (uint32_t chunk = pool->count; chunk-- > pool->small_count;)
		pool->free_large[pool->large_free++] = (uint16_t)chunk;
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
			if (chunk >= pool->count || pool->borrower[chunk] != account)
				return -1;
			chunk_untake(pool, chunk);
			collected++;
		}
	}
	return collected;
}

void chunk_recall(struct chunk_pool *pool, struct chunk_account *account)
{
	for (uint32_t chunk = 0; chunk < pool->count && account->lent > 0; chunk++)
		if (pool->borrower[chunk] == account)
			chunk_untake(pool, chunk);
}
