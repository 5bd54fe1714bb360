/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * table.h - entries found by their tag and source in constant time, those of one key in
 * the order in which they were added.
 *
 * A table is for one pattern: which bits of the tag count, and whether the source does.
 * A bucket is a chain of keys. Only the oldest entry of a key is in the chain; the others
 * hang on it in a ring, so that ten thousand entries of one key are as good as one. The
 * links are in the entries: nothing is allocated but the array of buckets, and if that
 * cannot grow the chains become longer.
 *
 * Peers choose tags. The hash multiplies by random odd numbers of each queue's own, so that
 * nobody can choose tags that all fall into one bucket.
 */
#ifndef VICINAL_MATCH_TABLE_H
#define VICINAL_MATCH_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A doubly linked circular list with its head as a node of it. */
struct match_link {
	struct match_link *next;
	struct match_link *previous;
};

/* What an entry is found by. */
struct match_key {
	uint64_t tag;
	uint32_t source;
};

/* An entry's node in a table. */
struct match_node {
	struct match_link same;   /* entries of the same key, in a ring; must be first */
	struct match_node *chain; /* the next key in the bucket; MATCH_YOUNGER if not the oldest */
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

/* How often an entry is looked at, for the test that says this does not grow with their number. */
#ifdef MATCH_STEPS_COUNTED
extern uint64_t match_steps;
#define MATCH_STEP() ((void)match_steps++)
#else
#define MATCH_STEP() ((void)0)
#endif

extern struct match_node match_younger;
#define MATCH_YOUNGER (&match_younger)

/* Numbers that nobody knows. */
void match_seed_open(struct match_seed *seed);

/* Returns false if no memory is left. */
bool match_table_open(struct match_table *table, uint64_t ignore, bool any_source, ptrdiff_t key_offset,
		      const struct match_seed *seed);
/* Forgets its entries. */
void match_table_close(struct match_table *table);

void match_table_add(struct match_table *table, struct match_node *node);
void match_table_remove(struct match_table *table, struct match_node *node);
/* The oldest entry that agrees with `key` in what counts, or NULL. */
struct match_node *match_table_find(const struct match_table *table, struct match_key key);
/* Walk all entries, in no particular order: `previous` NULL for the first. */
struct match_node *match_table_next(const struct match_table *table, const struct match_node *previous);
/* Move all entries of `source` to `list`, linked by `same`. */
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
