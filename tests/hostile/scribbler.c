/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * scribbler PATH SECONDS SEED WHAT - write nonsense into a region while other processes use it.
 *
 * WHAT is everything, header, members, tables, rings, arenas or heaps: the part that gets the nonsense. `cut`
 * truncates the file instead, after half of the time.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "region/layout.h"

struct target {
	unsigned char *base;
	size_t bytes;
	uint32_t members;
	uint64_t section_bytes;
	uint64_t heap_bytes;
	uint64_t sections_offset;
	uint64_t random;
};

static uint64_t next_random(struct target *target)
{
	target->random ^= target->random << 13;
	target->random ^= target->random >> 7;
	target->random ^= target->random << 17;
	return target->random;
}

static uint64_t below(struct target *target, uint64_t limit)
{
	return (next_random(target) >> 8) % limit;
}

static const char *const parts[] = {"everything", "header", "members", "tables",
				    "rings",      "arenas", "heaps",   "cut"};

static bool is_part(const char *what)
{
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (strcmp(what, parts[i]) == 0)
			return true;
	return false;
}

static uint64_t somewhere(struct target *target, const char *what)
{
	uint64_t section = target->sections_offset + below(target, target->members) * target->section_bytes;
	uint64_t arena = SECTION_ARENA_OFFSET(target->members);

	if (strcmp(what, "header") == 0)
		return below(target, REGION_PAGE);
	if (strcmp(what, "members") == 0)
		return REGION_SLOTS_OFFSET + below(target, target->sections_offset - REGION_SLOTS_OFFSET);
	if (strcmp(what, "tables") == 0)
		return section + below(target, arena);
	if (strcmp(what, "rings") == 0)
		return section + arena + below(target, (uint64_t)64 * 1024);
	if (strcmp(what, "arenas") == 0)
		return section + arena + below(target, target->section_bytes - target->heap_bytes - arena);
	if (strcmp(what, "heaps") == 0)
		return section + target->section_bytes - 1 - below(target, target->heap_bytes);
	return below(target, target->bytes);
}

/* One write: a byte, a word with one bit flipped, a small number, or any value. */
static void scribble(struct target *target, const char *what)
{
	uint64_t at = somewhere(target, what);
	uint64_t word = at / 8 * 8;
	uint64_t old = 0;

	if (word + 8 > target->bytes)
		return;
	memcpy(&old, target->base + word, 8);
	switch (below(target, 5)) {
	case 0:
		target->base[at] = (unsigned char)next_random(target);
		return;
	case 1:
		old ^= UINT64_C(1) << below(target, 64);
		break;
	case 2:
		old += below(target, 16);
		break;
	case 3:
		old = below(target, 4) == 0 ? UINT64_MAX : below(target, 1000);
		break;
	default:
		old = next_random(target);
		break;
	}
	memcpy(target->base + word, &old, 8);
}

static double seconds_now(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void pause_seconds(double seconds)
{
	const struct timespec pause = {.tv_sec = (time_t)seconds,
				       .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};

	(void)nanosleep(&pause, NULL);
}

static int give_up(const char *path, const char *problem)
{
	(void)fprintf(stderr, "scribbler: error: %s: %s\n", path, problem);
	return 1;
}

int main(int count, char **arguments)
{
	if (count != 5 || !is_part(arguments[4])) {
		(void)fprintf(stderr, "usage: scribbler PATH SECONDS SEED WHAT\n");
		return 2;
	}
	const char *path = arguments[1];
	const char *what = arguments[4];
	double seconds = strtod(arguments[2], NULL);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct stat status;
	if (fd < 0 || fstat(fd, &status) != 0)
		return give_up(path, "cannot be opened");
	if (strcmp(what, "cut") == 0) {
		pause_seconds(seconds / 2);
		return ftruncate(fd, REGION_PAGE) == 0 ? 0 : give_up(path, "cannot be truncated");
	}
	struct target target = {.bytes = (size_t)status.st_size,
				.random = strtoull(arguments[3], NULL, 10) * 2 + 1};
	void *base = mmap(NULL, target.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return give_up(path, "cannot be mapped");
	target.base = base;
	const struct region_header *header = base;
	target.members = shared_load_u32(&header->members);
	target.section_bytes = shared_load_u64(&header->section_bytes);
	target.heap_bytes = shared_load_u64(&header->heap_bytes);
	target.sections_offset = shared_load_u64(&header->sections_offset);
	if (shared_load_u64(&header->magic) != REGION_MAGIC)
		return give_up(path, "is no region");
	if (strcmp(what, "heaps") == 0 && target.heap_bytes == 0)
		return give_up(path, "has no heaps");
	uint64_t writes = 0;
	for (double until = seconds_now() + seconds; seconds_now() < until;) {
		/* Bursts, and pauses in which the victims make headway. */
		for (uint64_t burst = below(&target, 40); burst > 0; burst--, writes++)
			scribble(&target, what);
		pause_seconds((double)below(&target, 2000) * 1e-6);
	}
	(void)printf("writes=%llu\n", (unsigned long long)writes);
	return 0;
}
