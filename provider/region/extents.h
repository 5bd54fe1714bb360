/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * extents.h - which pages of a heap are taken. Two-level segregated fit: free extents are
 * kept in lists by size, bitmaps say which lists have any, so taking and giving back cost
 * the same however many there are; neighbours that are free are always one extent.
 *
 * Only numbers of pages: the pages themselves are never touched, and all of this is in
 * memory of its own, which nobody else can write and no malloc() was asked for.
 */
#ifndef VICINAL_REGION_EXTENTS_H
#define VICINAL_REGION_EXTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXTENT_NONE UINT32_MAX
/* 1 TiB in pages of 4 KiB; the bits above tell what a tag is of. */
#define EXTENTS_PAGES_MAX (UINT32_C(1) << 28)

/* Lists for each power of two, and powers of two that a heap can have. */
#define EXTENT_LISTS 16U
#define EXTENT_LEVELS 26U

/* Of one page. Valid for the first and the last page of each extent, and stale for others. */
struct extent_tag {
	uint32_t length; /* pages of the extent, and flags */
	uint32_t next;   /* in its list; of the first page of a free extent */
	uint32_t previous;
};

struct extents {
	uint32_t pages;
	uint32_t taken;  /* pages */
	uint32_t count;  /* extents that are taken */
	uint64_t origin; /* number of the first page, for alignment */
	struct extent_tag *tags;
	uint32_t levels;               /* bit i: lists[i] has a free extent */
	uint32_t lists[EXTENT_LEVELS]; /* bit j: heads[i][j] is one */
	uint32_t heads[EXTENT_LEVELS][EXTENT_LISTS];
};

/* `pages` from 1 to EXTENTS_PAGES_MAX, all free. Returns 0 or -ENOMEM. */
int extents_open(struct extents *extents, uint32_t pages, uint64_t origin);
void extents_close(struct extents *extents);

/*
 * Take `pages` (not 0) whose first has a number, counted from `origin`, that `alignment`
 * divides, a power of two. Returns the first, or EXTENT_NONE if there are not so many.
 */
uint32_t extents_take(struct extents *extents, uint32_t pages, uint32_t alignment);

/* Give back what begins at `first`. False, and nothing is done, if no taken extent does. */
bool extents_give(struct extents *extents, uint32_t first);

/* Make it `pages` (not 0) long without moving it. False if it cannot be, and it stays as it is. */
bool extents_resize(struct extents *extents, uint32_t first, uint32_t pages);

/* The pages of the taken extent that begins at `first`; 0 if none does. */
uint32_t extents_length(const struct extents *extents, uint32_t first);

#endif
