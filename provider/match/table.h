/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * table.h - finds entries by tag and source in constant time; entries with equal keys in the order in which
 * they were added.
 *
 * A table serves one pattern: which bits of the tag count, and whether the source counts. A bucket is a chain
 * of keys. Only the oldest entry of a key is in the chain; the other entries of the key are linked to it in a
 * ring, so ten thousand entries with one key cost as much as one. The links are inside the entries. Only the
 * array of buckets is allocated, and if it cannot grow, the chains become longer.
 *
 * Peers choose tags. The hash multiplies by odd numbers that each queue chooses at random, so that a peer
 * cannot choose tags that all fall into one bucket.
 */
#ifndef VICINAL_MATCH_TABLE_H
#define VICINAL_MATCH_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A doubly linked circular list. Its head is a node of it. */
struct match_link {
	struct match_link *next;
	struct match_link *previous;
};

/* The key of an entry. */
struct match_key {
	uint64_t tag;
	uint32_t source;
};

/* An entry's node in a table. */
struct match_node {
	struct match_link same; /* a ring of entries with the same key; must be first */
	struct match_node
		*chain; /* the next key in the bucket; MATCH_YOUNGER if not the oldest entry of its key */
};

struct match_seed {
	uint64_t tag;
	uint64_t source;
};

struct match_table {
	struct match_node **buckets; /* NULL: the table is not in use */
	uint64_t ignore;             /* bits of the tag that do not count */
	bool any_source;             /* the source does not count */
	uint32_t bits;               /* log2 of the number of buckets */
	uint32_t keys;
	uint32_t count;       /* entries */
	ptrdiff_t key_offset; /* bytes from an entry's node to its key */
	struct match_seed seed;
};

/* Counts visited entries, for the test that visits do not grow with the number of entries. */
#ifdef MATCH_STEPS_COUNTED
extern uint64_t match_steps;
#define MATCH_STEP() ((void)match_steps++)
#else
#define MATCH_STEP() ((void)0)
#endif

extern struct match_node match_younger;
#define MATCH_YOUNGER (&match_younger)

/* Chooses random numbers that no peer knows. */
void match_seed_open(struct match_seed *seed);

/* Returns false without memory. */
bool match_table_open(struct match_table *table, uint64_t ignore, bool any_source, ptrdiff_t key_offset,
		      const struct match_seed *seed);
/* Empties the table without touching its entries. */
void match_table_close(struct match_table *table);

void match_table_add(struct match_table *table, struct match_node *node);
void match_table_remove(struct match_table *table, struct match_node *node);
/* The oldest entry that matches `key` by the table's pattern, or NULL. */
struct match_node *match_table_find(const struct match_table *table, struct match_key key);
/* Walks all entries in no particular order. `previous` is NULL for the first. */
struct match_node *match_table_next(const struct match_table *table, const struct match_node *previous);
/* Moves all entries of `source` to `list`, linked by `same`. */
void match_table_move(struct match_table *table, uint32_t source, struct match_link *list);

static inline const struct match_key *match_key_of(const struct match_table *table,
						   const struct match_node *node)
{
	return (const struct match_key *)(const void *)((const char *)node + table->key_offset);
}

static inline bool match_is_empty(const struct match_link *head)
{
	return head->next == head;
}

static inline void match_list_open(struct match_link *head)
{
	head->next = head;
	head->previous = head;
}

static inline void match_unlink(struct match_link *link)
{
	link->previous->next = link->next;
	link->next->previous = link->previous;
}

static inline void match_append(struct match_link *head, struct match_link *link)
{
	link->previous = head->previous;
	link->next = head;
	head->previous->next = link;
	head->previous = link;
}

#endif
