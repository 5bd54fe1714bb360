/* SPDX-License-Identifier: BSD-3-Clause */
/* pool.c - grows and closes pools. */
#include "proto/pool.h"

#include <stdlib.h>

#define OBJECTS_PER_BLOCK 64U
#define OBJECT_ALIGNMENT 64U

void pool_open(struct pool *pool, size_t object_bytes)
{
	pool->object_bytes = (object_bytes + OBJECT_ALIGNMENT - 1) / OBJECT_ALIGNMENT * OBJECT_ALIGNMENT;
	pool->free = NULL;
	pool->blocks = NULL;
}

void *pool_grow(struct pool *pool)
{
	/* One object more than needed: it links the blocks. */
	unsigned char *block = aligned_alloc(OBJECT_ALIGNMENT, (OBJECTS_PER_BLOCK + 1) * pool->object_bytes);

	if (block == NULL)
		return NULL;
	struct pool_node *head = (struct pool_node *)(void *)block;
	head->next = pool->blocks;
	pool->blocks = head;
	for (size_t i = OBJECTS_PER_BLOCK; i > 1; i--)
		pool_give(pool, block + i * pool->object_bytes);
	return block + pool->object_bytes;
}

void pool_close(struct pool *pool)
{
	while (pool->blocks != NULL) {
		struct pool_node *next = pool->blocks->next;
		free(pool->blocks);
		pool->blocks = next;
	}
	pool->free = NULL;
}
