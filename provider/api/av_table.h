/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * av_table.h - the indices of an address vector, and the peers that they stand for. A peer has a number, its
 * source, and may be inserted several times: its entries are in a list, the newest first. Insertion and
 * removal take the same time however many entries there are, and the index of a removed entry is given out
 * again.
 */
#ifndef VICINAL_API_AV_TABLE_H
#define VICINAL_API_AV_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AV_REMOVED UINT32_MAX
#define AV_NO_ENTRY SIZE_MAX

struct av_entry {
	uint32_t source;   /* the peer's number in every transport of the domain; AV_REMOVED: nobody's */
	uint32_t epoch;    /* of the peer that it stands for */
	uint64_t inserted; /* how many insertions there had been */
	size_t older;      /* of the same source; while nobody has this index, the next free one */
	size_t newer;
};

/* All zero at first. */
struct av_table {
	struct av_entry *entries;
	size_t count; /* indices that were ever given out */
	size_t capacity;
	size_t free; /* the index that was freed last, plus 1; 0: none */
	uint64_t insertions;
	size_t *newest;   /* entry of each source */
	uint32_t sources; /* that `newest` has */
};

/* How often an entry is looked at, for the test that says this does not grow with their number. */
#ifdef AV_STEPS_COUNTED
extern uint64_t av_steps;
#define AV_STEP() ((void)av_steps++)
#else
#define AV_STEP() ((void)0)
#endif

void av_table_close(struct av_table *table);
/* Room for so many more indices. False without memory. */
bool av_table_grow(struct av_table *table, size_t more);
/* Room for a source. False without memory. */
bool av_table_reach(struct av_table *table, uint32_t source);
/*
 * An index for the next insertion, which stands for nobody yet; av_table_grow() made room. With `in_order` it
 * is one more than the last, for a caller that numbers the addresses itself.
 */
size_t av_table_take(struct av_table *table, bool in_order);
/* The index that was taken is not needed, or nobody has it any more. */
void av_table_give(struct av_table *table, size_t index);
/* From here on `index` stands for this peer; av_table_reach() made room for it. */
void av_table_link(struct av_table *table, size_t index, uint32_t source, uint32_t epoch);
/* It stands for nobody. Its index is not given out before av_table_give(). */
void av_table_unlink(struct av_table *table, size_t index);
/* The newest entry of this peer; AV_NO_ENTRY if there is none. */
size_t av_table_find(const struct av_table *table, uint32_t source, uint32_t epoch);

#endif
