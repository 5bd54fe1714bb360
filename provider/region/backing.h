/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * backing.h - which pages of a sparse heap the file system has reserved (region_header.sparse_heaps).
 *
 * An access to a page that is not reserved takes a page from the file system, or ends in SIGBUS if
 * there is none. So a page is reserved before it is handed out, and an allocation fails in words
 * instead. Free pages stay reserved up to a bound, because reserving costs a call and a page fault
 * for each page, and what is beyond the bound is given back.
 *
 * The state is private. Functions that change it are called under the lock of heap.c. The two that
 * only make calls of the kernel need no lock, if no other thread uses the pages.
 */
#ifndef VICINAL_REGION_BACKING_H
#define VICINAL_REGION_BACKING_H

#include "region/extents.h"
#include "region/region.h"

/* Free pages that stay reserved, at most: 32 MiB, as much as glibc's malloc() may keep of a block. */
#define BACKING_KEPT_PAGES 8192U
/* Blocks from this length on are given back without the lock. */
#define BACKING_LARGE_PAGES 256U

/* All zero: all pages are reserved for good. */
struct backing {
	bool sparse;
	bool keeps; /* nothing is given back any more */
	int fd;
	uint64_t offset;   /* file offset of page 0 */
	uint32_t pages;    /* of the heap */
	uint32_t unit;     /* pages that the file system reserves at once, a power of two */
	uint32_t before;   /* pages of the first unit that lie before page 0 */
	uint32_t reserved; /* pages in reserved units that lie wholly in the heap */
	uint32_t trim_at;  /* free reserved pages from which on some are given back */
	uint64_t *bits;    /* bit i: unit i is reserved */
};

/* A range of pages that must be reserved before it is used. `missing` of them are not. */
struct backing_need {
	uint32_t first;
	uint32_t pages;
	uint32_t missing;
};

/*
 * Open for the `pages` pages at `offset` in the sparse region, and give back what a former occupant
 * left there: then all pages are zero. Returns 0 or an errno.
 */
int backing_open(struct backing *backing, const struct region *region, uint64_t offset, uint32_t pages);
void backing_close(struct backing *backing);

/* Does any of the pages need reserving? */
bool backing_needs(const struct backing *backing, uint32_t first, uint32_t pages, struct backing_need *need);
/* Make the file system reserve them. Returns 0 or an errno. No lock. */
int backing_reserve(const struct backing *backing, const struct backing_need *need);
/* They are reserved. */
void backing_set(struct backing *backing, const struct backing_need *need);

/* Free pages that are reserved. */
uint32_t backing_spare(const struct backing *backing, const struct extents *extents);
/*
 * Give these pages back to the file system. Returns false if it refuses. No lock. Units that do not
 * lie wholly in the range stay reserved.
 */
bool backing_punch(const struct backing *backing, uint32_t first, uint32_t pages);
/* The pages were punched. */
void backing_clear(struct backing *backing, uint32_t first, uint32_t pages);
/* Give free pages back if more than the bound are reserved. */
void backing_trim(struct backing *backing, const struct extents *extents);

#endif
