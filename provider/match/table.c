/* SPDX-License-Identifier: BSD-3-Clause */
/* table.c - hashing, chains of keys, and rings of entries with equal keys. */
#include "match/table.h"

#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#define BITS_FIRST 6U
/* 128 MiB of buckets, for more entries than all peers may have waiting. Beyond that, chains grow. */
#define BITS_MAX 24U

/* Marks nodes that are not in a chain. Never dereferenced. */
struct match_node match_younger;

void match_seed_open(struct match_seed *seed)
{
	if (getrandom(seed, sizeof(*seed), GRND_NONBLOCK) != (ssize_t)sizeof(*seed)) {
		/*
		 * Early after boot there are no random numbers. A peer in another virtual machine or process
		 * cannot see these values either.
		 */
		struct timespec now;
		(void)clock_gettime(CLOCK_MONOTONIC, &now);
		seed->tag = (uint64_t)now.tv_nsec * UINT64_C(0x9e3779b97f4a7c15);
		seed->source = (uint64_t)(uintptr_t)seed * UINT64_C(0xd1342543de82ef95);
	}
	/* Multiplication by an odd number loses no bit of the tag. */
	seed->tag |= 1;
	seed->source |= 1;
}

bool match_table_open(struct match_table *table, uint64_t ignore, bool any_source, ptrdiff_t key_offset,
		      const struct match_seed *seed)
{
	*table = (struct match_table){
		.buckets = calloc(1U << BITS_FIRST, sizeof(struct match_node *)),
		.ignore = ignore,
		.any_source = any_source,
		.bits = BITS_FIRST,
		.key_offset = key_offset,
		.seed = *seed,
	};
	return table->buckets != NULL;
}

void match_table_close(struct match_table *table)
{
	free(table->buckets);
	table->buckets = NULL;
	table->count = 0;
	table->keys = 0;
}

static size_t bucket_of(const struct match_table *table, struct match_key key)
{
	uint64_t hash = (key.tag & ~table->ignore) * table->seed.tag;

	if (!table->any_source)
		hash += key.source * table->seed.source;
	/*
	 * Each upper bit depends on all lower bits. Without mixing, consecutive tags would fall into a
	 * regular pattern.
	 */
	hash ^= hash >> 32;
	hash *= UINT64_C(0x9e3779b97f4a7c15);
	return hash >> (64 - table->bits);
}

static bool agree(const struct match_table *table, struct match_key one, struct match_key other)
{
	return ((one.tag ^ other.tag) & ~table->ignore) == 0 &&
	       (table->any_source || one.source == other.source);
}

struct match_node *match_table_find(const struct match_table *table, struct match_key key)
{
	struct match_node *node = table->buckets[bucket_of(table, key)];

	for (; node != NULL; node = node->chain) {
		MATCH_STEP();
		if (agree(table, *match_key_of(table, node), key))
			return node;
	}
	return NULL;
}

/* Doubles the number of buckets. Without memory, the table keeps its size. */
static void grow(struct match_table *table)
{
	size_t before = (size_t)1 << table->bits;
	struct match_node **old = table->buckets;
	struct match_node **buckets = calloc(before * 2, sizeof(struct match_node *));

	if (buckets == NULL)
		return;
	table->buckets = buckets;
	table->bits++;
	for (size_t bucket = 0; bucket < before; bucket++) {
		struct match_node *next = NULL;
		for (struct match_node *node = old[bucket]; node != NULL; node = next) {
			MATCH_STEP();
			struct match_node **to = &buckets[bucket_of(table, *match_key_of(table, node))];
			next = node->chain;
			node->chain = *to;
			*to = node;
		}
	}
	free(old);
}

void match_table_add(struct match_table *table, struct match_node *node)
{
	struct match_key key = *match_key_of(table, node);

	/* At most half full, so that most chains have one key and the processor predicts their end. */
	if (__builtin_expect(table->keys >> (table->bits - 1) != 0, 0) && table->bits < BITS_MAX)
		grow(table);
	struct match_node **bucket = &table->buckets[bucket_of(table, key)];
	table->count++;
	for (struct match_node *oldest = *bucket; oldest != NULL; oldest = oldest->chain) {
		MATCH_STEP();
		if (!agree(table, *match_key_of(table, oldest), key))
			continue;
		/* The oldest entry acts as the list's head: its predecessor in the ring is the youngest. */
		node->chain = MATCH_YOUNGER;
		match_append(&oldest->same, &node->same);
		return;
	}
	match_list_open(&node->same);
	node->chain = *bucket;
	*bucket = node;
	table->keys++;
}

void match_table_remove(struct match_table *table, struct match_node *node)
{
	table->count--;
	if (node->chain != MATCH_YOUNGER) {
		struct match_node **chain = &table->buckets[bucket_of(table, *match_key_of(table, node))];
		for (; *chain != node; chain = &(*chain)->chain)
			MATCH_STEP();
		if (match_is_empty(&node->same)) {
			*chain = node->chain;
			table->keys--;
			return;
		}
		struct match_node *heir = (struct match_node *)(void *)node->same.next;
		heir->chain = node->chain;
		*chain = heir;
	}
	match_unlink(&node->same);
}

struct match_node *match_table_next(const struct match_table *table, const struct match_node *previous)
{
	size_t bucket = 0;

	if (previous != NULL) {
		struct match_node *next = (struct match_node *)(void *)previous->same.next;
		if (next->chain == MATCH_YOUNGER)
			return next;
		/* `next` is the oldest entry: the ring is complete, and the next key is in the same chain. */
		if (next->chain != NULL)
			return next->chain;
		bucket = bucket_of(table, *match_key_of(table, next)) + 1;
	}
	for (; bucket < (size_t)1 << table->bits; bucket++)
		if (table->buckets[bucket] != NULL)
			return table->buckets[bucket];
	return NULL;
}

void match_table_move(struct match_table *table, uint32_t source, struct match_link *list)
{
	for (size_t bucket = 0; bucket < (size_t)1 << table->bits; bucket++) {
		struct match_node **chain = &table->buckets[bucket];
		while (*chain != NULL) {
			struct match_node *oldest = *chain;
			if (match_key_of(table, oldest)->source != source) {
				chain = &oldest->chain;
				continue;
			}
			*chain = oldest->chain;
			table->keys--;
			for (bool last = false; !last; table->count--) {
				struct match_link *link = &oldest->same;
				last = match_is_empty(link);
				oldest = (struct match_node *)(void *)link->next;
				match_unlink(link);
				match_append(list, link);
			}
		}
	}
}
