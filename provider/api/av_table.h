/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * av_table.h - the indices of an address vector, and the peers that they stand for.
 *
 * A peer has a number, its source, and may be inserted several times: its entries form a list, newest first.
 * Insertion and removal take constant time, and removed indices are reused.
 */
#ifndef VICINAL_API_AV_TABLE_H
#define VICINAL_API_AV_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AV_REMOVED UINT32_MAX
#define AV_NO_ENTRY SIZE_MAX

struct av_entry {
	uint32_t source;   /* the peer's number in all transports of the domain, or AV_REMOVED */
	uint32_t epoch;    /* of the peer */
	uint64_t inserted; /* the number of insertions before this one */
	size_t older;      /* of the same source; in a free entry, the next free index plus 1 */
	size_t newer;
};

/* Initialised to zero. */
struct av_table {
	struct av_entry *entries;
	size_t count; /* indices in use and free */
	size_t capacity;
	size_t free; /* the index that was freed last, plus 1; 0: none */
	uint64_t insertions;
	size_t *newest;   /* entry of each source */
	uint32_t sources; /* length of `newest` */
};

/* Counts visited entries, for the test that visits do not grow with the number of entries. */
#ifdef AV_STEPS_COUNTED
extern uint64_t av_steps;
#define AV_STEP() ((void)av_steps++)
#else
#define AV_STEP() ((void)0)
#endif

void av_table_close(struct av_table *table);
/* Reserves `more` further indices. Returns false without memory. */
bool av_table_grow(struct av_table *table, size_t more);
/* Reserves room for a source. Returns false without memory. */
bool av_table_reach(struct av_table *table, uint32_t source);
/*
 * Takes an index, reserved by av_table_grow(), for the next insertion. The index stands for no peer yet. With
 * `in_order` it is the last index plus 1, for a caller that numbers the addresses itself.
 */
size_t av_table_take(struct av_table *table, bool in_order);
/* Frees an index that stands for no peer. */
void av_table_give(struct av_table *table, size_t index);
/* Lets `index` stand for this peer. av_table_reach() has reserved the room. */
void av_table_link(struct av_table *table, size_t index, uint32_t source, uint32_t epoch);
/* Detaches `index` from its peer. av_table_give() frees the index for reuse. */
void av_table_unlink(struct av_table *table, size_t index);
/* The newest entry of this peer, or AV_NO_ENTRY. */
size_t av_table_find(const struct av_table *table, uint32_t source, uint32_t epoch);

#endif
