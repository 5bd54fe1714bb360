/* SPDX-License-Identifier: BSD-3-Clause */
/* extents.c - see extents.h. */
#include "region/extents.h"

#include <errno.h>
#include <sys/mman.h>

/*
 * Flags next to a length. A page with both flags is always the first page of an allocated extent.
 */
#define TAKEN (UINT32_C(1) << 31)
#define FIRST (UINT32_C(1) << 30)
#define LENGTH (FIRST - 1)

_Static_assert((EXTENT_LISTS & (EXTENT_LISTS - 1)) == 0, "a level is divided by a shift");
_Static_assert(EXTENTS_PAGES_MAX <= LENGTH, "a length leaves room for the flags");

#define LIST_BITS ((uint32_t)__builtin_ctz(EXTENT_LISTS))

struct bin {
	uint32_t level;
	uint32_t list;
};

/*
 * The list for extents of `pages` pages: level 0 has one list for each length below EXTENT_LISTS,
 * and each further level covers one power of two.
 */
static struct bin bin_of(uint32_t pages)
{
	if (pages < EXTENT_LISTS)
		return (struct bin){0, pages};
	uint32_t power = 31U - (uint32_t)__builtin_clz(pages);

	return (struct bin){power - LIST_BITS + 1, (pages >> (power - LIST_BITS)) & (EXTENT_LISTS - 1)};
}

static void tag_free(struct extents *extents, uint32_t first, uint32_t pages)
{
	extents->tags[first].length = pages;
	extents->tags[first + pages - 1].length = pages;
}

static void tag_taken(struct extents *extents, uint32_t first, uint32_t pages)
{
	extents->tags[first + pages - 1].length = pages | TAKEN;
	extents->tags[first].length = pages | TAKEN | FIRST;
}

static void link_free(struct extents *extents, uint32_t first, uint32_t pages)
{
	struct bin bin = bin_of(pages);
	uint32_t *head = &extents->heads[bin.level][bin.list];

	tag_free(extents, first, pages);
	extents->tags[first].previous = EXTENT_NONE;
	extents->tags[first].next = *head;
	if (*head != EXTENT_NONE)
		extents->tags[*head].previous = first;
	*head = first;
	extents->lists[bin.level] |= UINT32_C(1) << bin.list;
	extents->levels |= UINT32_C(1) << bin.level;
}

static void unlink_free(struct extents *extents, uint32_t first)
{
	const struct extent_tag *tag = &extents->tags[first];
	struct bin bin = bin_of(tag->length);

	if (tag->next != EXTENT_NONE)
		extents->tags[tag->next].previous = tag->previous;
	if (tag->previous != EXTENT_NONE) {
		extents->tags[tag->previous].next = tag->next;
		return;
	}
	extents->heads[bin.level][bin.list] = tag->next;
	if (tag->next != EXTENT_NONE)
		return;
	extents->lists[bin.level] &= ~(UINT32_C(1) << bin.list);
	if (extents->lists[bin.level] == 0)
		extents->levels &= ~(UINT32_C(1) << bin.level);
}

int extents_open(struct extents *extents, uint32_t pages, uint64_t origin)
{
	/*
	 * Zero pages of the kernel until an extent near them is used. malloc() is no option,
	 * because it may be the caller.
	 */
	void *tags = mmap(NULL, pages * sizeof(*extents->tags), PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (tags == MAP_FAILED)
		return -ENOMEM;
	*extents = (struct extents){.pages = pages, .origin = origin, .tags = tags};
	for (uint32_t level = 0; level < EXTENT_LEVELS; level++)
		for (uint32_t list = 0; list < EXTENT_LISTS; list++)
			extents->heads[level][list] = EXTENT_NONE;
	link_free(extents, 0, pages);
	return 0;
}

void extents_close(struct extents *extents)
{
	(void)munmap(extents->tags, extents->pages * sizeof(*extents->tags));
	extents->tags = NULL;
}

/* The number of pages from `first` to the first aligned page of a free extent. */
static uint32_t skip(const struct extents *extents, uint32_t first, uint32_t alignment)
{
	uint64_t number = extents->origin + first;

	return (uint32_t)(-number & (alignment - 1));
}

/* Find a free extent in the lists whose extents all have at least `pages` pages. */
static uint32_t find_larger(const struct extents *extents, uint32_t pages)
{
	uint32_t power = 31U - (uint32_t)__builtin_clz(pages);
	/* Rounded up to the lower bound of a list. */
	uint64_t rounded = pages;

	if (pages >= EXTENT_LISTS)
		rounded += (UINT32_C(1) << (power - LIST_BITS)) - 1;
	if (rounded > EXTENTS_PAGES_MAX)
		return EXTENT_NONE;
	struct bin bin = bin_of((uint32_t)rounded);
	uint32_t lists = extents->lists[bin.level] & (UINT32_MAX << bin.list);
	uint32_t level = bin.level;

	if (lists == 0) {
		uint32_t levels = extents->levels & (UINT32_MAX << level << 1);
		if (levels == 0)
			return EXTENT_NONE;
		level = (uint32_t)__builtin_ctz(levels);
		lists = extents->lists[level];
	}
	return extents->heads[level][__builtin_ctz(lists)];
}

/*
 * The lists of surely large enough extents are empty. Search the lists from the smallest possible
 * one, extent by extent, so that no allocation fails while there is memory for it.
 */
static uint32_t search(const struct extents *extents, uint32_t pages, uint32_t alignment)
{
	struct bin bin = bin_of(pages);

	for (uint32_t level = bin.level; level < EXTENT_LEVELS; level++) {
		for (uint32_t list = level == bin.level ? bin.list : 0; list < EXTENT_LISTS; list++) {
			uint32_t first = extents->heads[level][list];
			for (; first != EXTENT_NONE; first = extents->tags[first].next)
				if ((uint64_t)pages + skip(extents, first, alignment) <=
				    extents->tags[first].length)
					return first;
		}
	}
	return EXTENT_NONE;
}

uint32_t extents_take(struct extents *extents, uint32_t pages, uint32_t alignment)
{
	if (pages == 0 || pages > extents->pages - extents->taken)
		return EXTENT_NONE;
	uint64_t safe = (uint64_t)pages + alignment - 1;
	uint32_t found = safe <= EXTENTS_PAGES_MAX ? find_larger(extents, (uint32_t)safe) : EXTENT_NONE;

	if (found == EXTENT_NONE)
		found = search(extents, pages, alignment);
	if (found == EXTENT_NONE)
		return EXTENT_NONE;
	uint32_t length = extents->tags[found].length;
	uint32_t before = skip(extents, found, alignment);
	uint32_t after = length - before - pages;

	unlink_free(extents, found);
	if (before > 0)
		link_free(extents, found, before);
	if (after > 0)
		link_free(extents, found + before + pages, after);
	tag_taken(extents, found + before, pages);
	extents->taken += pages;
	extents->count++;
	return found + before;
}

uint32_t extents_length(const struct extents *extents, uint32_t first)
{
	if (first >= extents->pages)
		return 0;
	uint32_t length = extents->tags[first].length;

	return (length & (TAKEN | FIRST)) == (TAKEN | FIRST) ? length & LENGTH : 0;
}

uint32_t extents_before(const struct extents *extents, uint32_t end, bool *taken)
{
	uint32_t length = extents->tags[end - 1].length;

	*taken = (length & TAKEN) != 0;
	return length & LENGTH;
}

/* The length of the free extent that begins at `first`; 0 if there is none. */
static uint32_t free_at(const struct extents *extents, uint32_t first)
{
	if (first >= extents->pages)
		return 0;
	uint32_t length = extents->tags[first].length;

	return (length & TAKEN) == 0 ? length : 0;
}

/* Merge freed pages with the free extents on both sides. */
static void release(struct extents *extents, uint32_t first, uint32_t pages)
{
	uint32_t after = free_at(extents, first + pages);

	if (after > 0) {
		unlink_free(extents, first + pages);
		pages += after;
	}
	if (first > 0 && (extents->tags[first - 1].length & TAKEN) == 0) {
		uint32_t before = extents->tags[first - 1].length;
		unlink_free(extents, first - before);
		/* A former first page is an inner page now. */
		extents->tags[first].length = 0;
		first -= before;
		pages += before;
	}
	link_free(extents, first, pages);
}

bool extents_give(struct extents *extents, uint32_t first)
{
	uint32_t pages = extents_length(extents, first);

	if (pages == 0)
		return false;
	extents->taken -= pages;
	extents->count--;
	tag_free(extents, first, pages);
	release(extents, first, pages);
	return true;
}

bool extents_resize(struct extents *extents, uint32_t first, uint32_t pages)
{
	uint32_t length = extents_length(extents, first);

	if (length == 0 || pages == 0)
		return false;
	if (pages < length) {
		tag_taken(extents, first, pages);
		release(extents, first + pages, length - pages);
	} else if (pages > length) {
		uint32_t after = free_at(extents, first + length);
		if (pages - length > after)
			return false;
		unlink_free(extents, first + length);
		if (after > pages - length)
			link_free(extents, first + pages, after - (pages - length));
		tag_taken(extents, first, pages);
	}
	extents->taken = extents->taken - length + pages;
	return true;
}
