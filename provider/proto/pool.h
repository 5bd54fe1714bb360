/* SPDX-License-Identifier: BSD-3-Clause */
/* pool.h - reuses objects of one size: the fast path takes and returns objects without the allocator. */
#ifndef VICINAL_PROTO_POOL_H
#define VICINAL_PROTO_POOL_H

#include <stddef.h>

/* AddressSanitizer sees free objects as poisoned, like freed memory of the allocator. */
#if defined(__SANITIZE_ADDRESS__)
#define POOL_POISON 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POOL_POISON 1
#endif
#endif
#ifdef POOL_POISON
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(base, bytes) ((void)(base), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(base, bytes) ((void)(base), (void)(bytes))
#endif

struct pool_node {
	struct pool_node *next;
};

struct pool {
	size_t object_bytes; /* a multiple of 64 */
	struct pool_node *free;
	struct pool_node *blocks; /* allocated blocks, freed by pool_close() */
};

void pool_open(struct pool *pool, size_t object_bytes);
void pool_close(struct pool *pool);

/* Allocates another block of objects. Returns NULL without memory. */
void *pool_grow(struct pool *pool);

/* An object with the content that its last user left, or NULL without memory. */
static inline void *pool_take(struct pool *pool)
{
	struct pool_node *node = pool->free;

	if (__builtin_expect(node == NULL, 0))
		return pool_grow(pool);
	ASAN_UNPOISON_MEMORY_REGION(node, pool->object_bytes);
	pool->free = node->next;
	return node;
}

static inline void pool_give(struct pool *pool, void *object)
{
	struct pool_node *node = object;

	node->next = pool->free;
	pool->free = node;
	ASAN_POISON_MEMORY_REGION(object, pool->object_bytes);
}

#endif
