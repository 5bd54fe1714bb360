/* SPDX-License-Identifier: BSD-3-Clause */
/* backing.c - see backing.h. */
#include "region/backing.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/vfs.h>

/* statfs.f_type of hugetlbfs, from linux/magic.h. */
#define HUGETLBFS 0x958458f6
#define WORD_BITS 64U
/* A call that signals interrupt begins anew. All signals but SIGKILL are blocked meanwhile. */
#define TRIES 100U

static uint32_t unit_of(const struct backing *backing, uint32_t page)
{
	return (page + backing->before) / backing->unit;
}

static uint32_t units(const struct backing *backing)
{
	return unit_of(backing, backing->pages - 1) + 1;
}

static bool is_set(const struct backing *backing, uint32_t unit)
{
	return (backing->bits[unit / WORD_BITS] >> unit % WORD_BITS & 1) != 0;
}

/* The first unit from `unit` on that is set, or is not; `end` if there is none before. */
static uint32_t next_unit(const struct backing *backing, uint32_t unit, uint32_t end, bool set)
{
	while (unit < end) {
		uint64_t word = backing->bits[unit / WORD_BITS];
		word = (set ? word : ~word) >> unit % WORD_BITS;
		if (word != 0) {
			unit += (uint32_t)__builtin_ctzll(word);
			break;
		}
		unit = (unit / WORD_BITS + 1) * WORD_BITS;
	}
	return unit < end ? unit : end;
}

/* The first page of a unit. The first unit may begin before the heap. */
static uint32_t unit_begin(const struct backing *backing, uint32_t unit)
{
	uint32_t begin = unit * backing->unit;

	return begin > backing->before ? begin - backing->before : 0;
}

static uint32_t unit_end(const struct backing *backing, uint32_t unit)
{
	uint32_t end = (unit + 1) * backing->unit - backing->before;

	return end < backing->pages ? end : backing->pages;
}

static bool is_whole(const struct backing *backing, uint32_t unit)
{
	return unit_end(backing, unit) - unit_begin(backing, unit) == backing->unit;
}

/* The units that lie wholly in a range of pages. Returns how many there are. */
static uint32_t inner(const struct backing *backing, uint32_t first, uint32_t pages, uint32_t *from)
{
	uint32_t begin = unit_of(backing, first);
	uint32_t end = unit_of(backing, first + pages - 1) + 1;

	if (!is_whole(backing, begin) || unit_begin(backing, begin) < first)
		begin++;
	if (begin < end && (!is_whole(backing, end - 1) || unit_end(backing, end - 1) > first + pages))
		end--;
	*from = begin;
	return end > begin ? end - begin : 0;
}

static int call(const struct backing *backing, int mode, uint32_t first, uint32_t pages)
{
	off_t offset = (off_t)(backing->offset + (uint64_t)first * REGION_PAGE);
	off_t bytes = (off_t)pages * REGION_PAGE;
	sigset_t all;
	sigset_t before;
	int result = EINTR;
	int saved = errno;

	/*
	 * On tmpfs of older kernels, a call that a signal interrupts reserves nothing. A timer could
	 * stop it for ever.
	 */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	for (unsigned i = 0; i < TRIES && result == EINTR; i++)
		result = fallocate(backing->fd, FALLOC_FL_KEEP_SIZE | mode, offset, bytes) == 0 ? 0 : errno;
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = saved;
	return result;
}

/*
 * Clear the pages of the units at both ends that do not lie wholly in the heap: a hole does not
 * clear them on hugetlbfs before Linux 5.19, because the units contain other members' tables.
 */
static int clear_ends(struct backing *backing, unsigned char *base)
{
	uint32_t ends[2] = {0, units(backing) - 1};

	for (uint32_t i = 0; i < 2; i++) {
		uint32_t first = unit_begin(backing, ends[i]);
		struct backing_need need;
		if (is_whole(backing, ends[i]) || !backing_needs(backing, first, 1, &need))
			continue;
		int result = backing_reserve(backing, &need);
		if (result != 0)
			return result;
		backing_set(backing, &need);
		memset(base + (size_t)first * REGION_PAGE, 0,
		       (size_t)(unit_end(backing, ends[i]) - first) * REGION_PAGE);
	}
	return 0;
}

int backing_open(struct backing *backing, const struct region *region, uint64_t offset, uint32_t pages)
{
	struct statfs filesystem;

	if (fstatfs(region->fd, &filesystem) != 0)
		return errno;
	*backing = (struct backing){
		.sparse = true,
		.fd = region->fd,
		.offset = region->offset + offset,
		.pages = pages,
		.unit = 1,
		.trim_at = BACKING_KEPT_PAGES,
	};
	/* Other file systems handle parts of their blocks. */
	if ((unsigned long)filesystem.f_type == HUGETLBFS && filesystem.f_bsize > (long)REGION_PAGE)
		backing->unit = (uint32_t)(filesystem.f_bsize / REGION_PAGE);
	backing->before = (uint32_t)(backing->offset / REGION_PAGE) & (backing->unit - 1);

	/* Zero pages until they are used; malloc() may be the caller. */
	size_t words = (units(backing) + WORD_BITS - 1) / WORD_BITS;
	void *bits = mmap(NULL, words * sizeof(uint64_t), PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (bits == MAP_FAILED)
		return ENOMEM;
	backing->bits = bits;
	int result = call(backing, FALLOC_FL_PUNCH_HOLE, 0, pages);
	if (result == 0)
		result = clear_ends(backing, region->base + offset);
	if (result != 0)
		backing_close(backing);
	return result;
}

void backing_close(struct backing *backing)
{
	if (backing->bits != NULL)
		(void)munmap(backing->bits, (units(backing) + WORD_BITS - 1) / WORD_BITS * sizeof(uint64_t));
	*backing = (struct backing){0};
}

bool backing_needs(const struct backing *backing, uint32_t first, uint32_t pages, struct backing_need *need)
{
	*need = (struct backing_need){0};
	if (!backing->sparse || pages == 0)
		return false;
	uint32_t end = unit_of(backing, first + pages - 1) + 1;
	uint32_t begin = next_unit(backing, unit_of(backing, first), end, false);
	if (begin == end)
		return false;
	uint32_t behind = begin;
	for (uint32_t unit = begin; unit < end; unit = next_unit(backing, behind, end, false)) {
		behind = next_unit(backing, unit, end, true);
		need->missing += unit_end(backing, behind - 1) - unit_begin(backing, unit);
	}
	need->first = unit_begin(backing, begin);
	need->pages = unit_end(backing, behind - 1) - need->first;
	return true;
}

int backing_reserve(const struct backing *backing, const struct backing_need *need)
{
	struct statfs filesystem;

	/*
	 * Ask first, because a call that finds no room fills the file system for a moment. One
	 * without a limit has 0 blocks; hugetlbfs says so in other ways.
	 */
	if (backing->unit == 1 && fstatfs(backing->fd, &filesystem) == 0 && filesystem.f_blocks != 0 &&
	    filesystem.f_bavail < (uint64_t)need->missing * REGION_PAGE / (uint64_t)filesystem.f_bsize)
		return ENOSPC;
	return call(backing, 0, need->first, need->pages);
}

void backing_set(struct backing *backing, const struct backing_need *need)
{
	uint32_t last = unit_of(backing, need->first + need->pages - 1);

	for (uint32_t unit = unit_of(backing, need->first); unit <= last; unit++) {
		/* Another thread may have reserved a unit in which both have pages. */
		if (!is_set(backing, unit) && is_whole(backing, unit))
			backing->reserved += backing->unit;
		backing->bits[unit / WORD_BITS] |= UINT64_C(1) << unit % WORD_BITS;
	}
}

uint32_t backing_spare(const struct backing *backing, const struct extents *extents)
{
	return backing->reserved > extents->taken ? backing->reserved - extents->taken : 0;
}

bool backing_punch(const struct backing *backing, uint32_t first, uint32_t pages)
{
	uint32_t from = 0;
	uint32_t count = inner(backing, first, pages, &from);

	return count == 0 ||
	       call(backing, FALLOC_FL_PUNCH_HOLE, unit_begin(backing, from), count * backing->unit) == 0;
}

void backing_clear(struct backing *backing, uint32_t first, uint32_t pages)
{
	uint32_t from = 0;
	uint32_t count = inner(backing, first, pages, &from);

	for (uint32_t unit = next_unit(backing, from, from + count, true); unit < from + count;
	     unit = next_unit(backing, unit + 1, from + count, true)) {
		backing->reserved -= backing->unit;
		backing->bits[unit / WORD_BITS] &= ~(UINT64_C(1) << unit % WORD_BITS);
	}
}

/* Does a free extent have units to give back? */
static bool has_reserved(const struct backing *backing, uint32_t first, uint32_t pages)
{
	uint32_t from = 0;
	uint32_t count = inner(backing, first, pages, &from);

	return next_unit(backing, from, from + count, true) < from + count;
}

void backing_trim(struct backing *backing, const struct extents *extents)
{
	uint32_t end = backing->pages;

	if (!backing->sparse || backing->keeps || backing_spare(backing, extents) <= backing->trim_at)
		return;
	/*
	 * Down to half of the bound, so that the next pages are given back in a long run too. From
	 * the end, because allocations prefer the beginning.
	 */
	while (end > 0 && backing_spare(backing, extents) > BACKING_KEPT_PAGES / 2) {
		bool taken = false;
		uint32_t pages = extents_before(extents, end, &taken);
		end -= pages;
		if (taken || !has_reserved(backing, end, pages))
			continue;
		if (!backing_punch(backing, end, pages)) {
			backing->keeps = true;
			return;
		}
		backing_clear(backing, end, pages);
	}
	/* What is left lies in units that also have blocks. Do not search again for each free(). */
	uint32_t left = backing_spare(backing, extents);
	backing->trim_at = left + BACKING_KEPT_PAGES / 2 > BACKING_KEPT_PAGES ? left + BACKING_KEPT_PAGES / 2
									      : BACKING_KEPT_PAGES;
}
