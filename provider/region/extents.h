/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * extents.h - which pages of a heap are allocated. Two-level segregated fit: free extents are in
 * lists by size, and bitmaps say which lists have entries. So allocating and freeing cost the same
 * for any number of extents. Adjacent free extents are always merged.
 *
 * The allocator works with page numbers and never touches the pages. Its own state is in a separate
 * private mapping, which no other process can write and which needs no malloc().
 */
#ifndef VICINAL_REGION_EXTENTS_H
#define VICINAL_REGION_EXTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXTENT_NONE UINT32_MAX
/* 1 TiB in pages of 4 KiB. The bits above are flags of a tag. */
#define EXTENTS_PAGES_MAX (UINT32_C(1) << 28)

/* Lists for each power of two, and the number of powers of two in the length of a heap. */
#define EXTENT_LISTS 16U
#define EXTENT_LEVELS 26U

/* The tag of one page. Valid for the first and last page of each extent, stale for other pages. */
struct extent_tag {
	uint32_t length; /* pages of the extent, and flags */
	uint32_t next;   /* the next extent in the list; only in the first page of a free extent */
	uint32_t previous;
};

struct extents {
	uint32_t pages;
	uint32_t taken;  /* allocated pages */
	uint32_t count;  /* allocated extents */
	uint64_t origin; /* number of the first page, for alignment */
	struct extent_tag *tags;
	uint32_t levels;               /* bit i: lists[i] has a free extent */
	uint32_t lists[EXTENT_LEVELS]; /* bit j: heads[i][j] is a free extent */
	uint32_t heads[EXTENT_LEVELS][EXTENT_LISTS];
};

/* Begin with `pages` free pages, 1 to EXTENTS_PAGES_MAX. Returns 0 or -ENOMEM. */
int extents_open(struct extents *extents, uint32_t pages, uint64_t origin);
void extents_close(struct extents *extents);

/*
 * Allocate `pages` pages (not 0). `alignment`, a power of two, divides the number of the first
 * page, counted from `origin`. Returns the first page, or EXTENT_NONE if no free extent is large
 * enough.
 */
uint32_t extents_take(struct extents *extents, uint32_t pages, uint32_t alignment);

/*
 * Free the extent that begins at `first`. Returns false and does nothing if no allocated extent
 * begins there.
 */
bool extents_give(struct extents *extents, uint32_t first);

/*
 * Change the length of an extent in place to `pages` (not 0). Returns false and changes nothing if
 * that is not possible.
 */
bool extents_resize(struct extents *extents, uint32_t first, uint32_t pages);

/* The number of pages of the allocated extent that begins at `first`; 0 if none begins there. */
uint32_t extents_length(const struct extents *extents, uint32_t first);

/* The number of pages of the extent, allocated or free, that ends before page `end` (not 0). */
uint32_t extents_before(const struct extents *extents, uint32_t end, bool *taken);

#endif
