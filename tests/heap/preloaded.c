/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * preloaded SCENARIO - the allocations of an unmodified program, with libvicinal-heap.so preloaded and an
 * endpoint on the region that VICINAL_REGION names. Prints "ok SCENARIO", or one line with the failed check.
 */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "api/vicinal_ext.h"

#define KIB ((size_t)1024)
#define LARGE (200 * KIB)

#define CHECK(condition) ((condition) ? (void)0 : failed(__LINE__, #condition))

static struct {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *endpoint;
	struct vicinal_heap_ops *heap;
} side;

static _Noreturn void failed(int line, const char *text)
{
	(void)fprintf(stderr, "preloaded.c:%d: %s\n", line, text);
	_exit(1);
}

static void open_domain(void)
{
	struct fi_info *hints = fi_allocinfo();

	CHECK(hints != NULL);
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = strdup("vicinal");
	CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &side.info) == 0);
	fi_freeinfo(hints);
	CHECK(fi_fabric(side.info->fabric_attr, &side.fabric, NULL) == 0);
	CHECK(fi_domain(side.fabric, side.info, &side.domain, NULL) == 0);
	CHECK(fi_open_ops(&side.domain->fid, VICINAL_HEAP_OPS, 0, (void **)&side.heap, NULL) == 0);
}

static void open_endpoint(void)
{
	struct fi_cq_attr queue = {.format = FI_CQ_FORMAT_TAGGED};
	struct fi_av_attr vector = {.type = FI_AV_TABLE};

	CHECK(fi_cq_open(side.domain, &queue, &side.cq, NULL) == 0);
	CHECK(fi_av_open(side.domain, &vector, &side.av, NULL) == 0);
	CHECK(fi_endpoint(side.domain, side.info, &side.endpoint, NULL) == 0);
	CHECK(fi_ep_bind(side.endpoint, &side.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	CHECK(fi_ep_bind(side.endpoint, &side.av->fid, 0) == 0);
	CHECK(fi_enable(side.endpoint) == 0);
}

static void open_side(void)
{
	open_domain();
	open_endpoint();
}

static void close_endpoint(void)
{
	CHECK(fi_close(&side.endpoint->fid) == 0);
	CHECK(fi_close(&side.cq->fid) == 0);
	CHECK(fi_close(&side.av->fid) == 0);
}

static void close_side(void)
{
	close_endpoint();
	CHECK(fi_close(&side.domain->fid) == 0);
	CHECK(fi_close(&side.fabric->fid) == 0);
	fi_freeinfo(side.info);
}

static uint64_t used(void)
{
	uint64_t total = 0;
	uint64_t bytes = 0;

	CHECK(side.heap->query(side.endpoint, &total, &bytes) == 0);
	return bytes;
}

/* Is the address in a mapping of the region's file? Ask only the kernel. */
static bool in_region(const void *address)
{
	const char *name = getenv("VICINAL_REGION");
	char line[512];
	bool found = false;
	FILE *maps = fopen("/proc/self/maps", "re");

	CHECK(maps != NULL && name != NULL);
	const char *region = name + strlen("file:");
	while (fgets(line, sizeof(line), maps) != NULL) {
		char *rest = NULL;
		uintptr_t begin = strtoull(line, &rest, 16);
		uintptr_t end = strtoull(rest + 1, NULL, 16);
		if ((uintptr_t)address >= begin && (uintptr_t)address < end)
			found = strstr(line, region) != NULL;
	}
	(void)fclose(maps);
	return found;
}

/*
 * Bytes that depend on their offset, in words: compilers vectorise that, and these tests spend most of their
 * time here.
 */
static uint32_t pattern(size_t word, unsigned seed)
{
	return (uint32_t)word * UINT32_C(2654435761) + seed * UINT32_C(40503);
}

static void fill(unsigned char *bytes, size_t length, unsigned seed)
{
	size_t words = length / sizeof(uint32_t);

	for (size_t i = 0; i < words; i++) {
		uint32_t word = pattern(i, seed);
		memcpy(bytes + i * sizeof(word), &word, sizeof(word));
	}
	uint32_t last = pattern(words, seed);
	memcpy(bytes + words * sizeof(last), &last, length % sizeof(last));
}

static bool is_filled(const unsigned char *bytes, size_t length, unsigned seed)
{
	size_t words = length / sizeof(uint32_t);
	uint32_t wrong = 0;

	for (size_t i = 0; i < words; i++) {
		uint32_t word = 0;
		memcpy(&word, bytes + i * sizeof(word), sizeof(word));
		wrong |= word ^ pattern(i, seed);
	}
	uint32_t last = pattern(words, seed);
	return wrong == 0 && memcmp(bytes + words * sizeof(last), &last, length % sizeof(last)) == 0;
}

static bool is_zero(const unsigned char *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (bytes[i] != 0)
			return false;
	return true;
}

/* Through volatile pointers, so that the compiler does not apply its knowledge of malloc() and free(). */
static void *(*volatile get)(size_t) = malloc;
static void *(*volatile get_zeros)(size_t, size_t) = calloc;
static void *(*volatile change)(void *, size_t) = realloc;
static void (*volatile give)(void *) = free;

/* From fi_enable() on, large blocks are in the region. Small blocks never are. */
static void place(void)
{
	unsigned char *early = get(LARGE);

	CHECK(!in_region(early));
	open_side();
	CHECK(used() == 0);
	unsigned char *large = get(LARGE);
	CHECK(in_region(large));
	CHECK(used() == LARGE);
	CHECK(malloc_usable_size(large) == LARGE);
	unsigned char *least = get(64 * KIB);
	CHECK(in_region(least));
	unsigned char *small = get(64 * KIB - 1);
	CHECK(!in_region(small));
	CHECK(!in_region(early));
	fill(large, LARGE, 1);
	fill(early, LARGE, 2);
	give(small);
	give(least);
	CHECK(is_filled(large, LARGE, 1));
	CHECK(is_filled(early, LARGE, 2));
	give(large);
	give(early);
	CHECK(used() == 0);
	close_side();
}

static void zeros(void)
{
	open_side();
	for (unsigned round = 0; round < 20; round++) {
		unsigned char *dirty = get(LARGE);
		memset(dirty, 0xee, LARGE);
		give(dirty);
		unsigned char *clean = get_zeros(LARGE / 8, 8);
		CHECK(in_region(clean));
		CHECK(is_zero(clean, LARGE));
		memset(clean, 0xdd, LARGE);
		give(clean);
	}
	errno = 0;
	CHECK(get_zeros(SIZE_MAX / 2, 3) == NULL);
	CHECK(errno == ENOMEM);
	CHECK(get(SIZE_MAX) == NULL);
	CHECK(get(SIZE_MAX - 4096) == NULL);
	close_side();
}

static void reallocations(void)
{
	open_side();
	unsigned char *block = change(NULL, 1000);
	CHECK(!in_region(block));
	fill(block, 1000, 1);
	block = change(block, LARGE); /* moves into the region */
	CHECK(in_region(block));
	CHECK(is_filled(block, 1000, 1));
	fill(block, LARGE, 2);
	unsigned char *before = block;
	block = change(block, 3 * LARGE); /* there is room behind it */
	CHECK(block == before);
	CHECK(is_filled(block, LARGE, 2));
	fill(block, 3 * LARGE, 3);
	unsigned char *wall = get(LARGE);
	block = change(block, 4 * LARGE); /* there is no room behind it */
	CHECK(block != before);
	CHECK(in_region(block));
	CHECK(is_filled(block, 3 * LARGE, 3));
	block = change(block, 100);
	CHECK(is_filled(block, 100, 3));
	CHECK(malloc_usable_size(block) == 4096);
	block = reallocarray(block, LARGE, 2);
	CHECK(is_filled(block, 100, 3));
	fill(block, 2 * LARGE, 4);
	/* More than the heap has: out of the region again. */
	block = change(block, 64 * KIB * KIB);
	CHECK(block != NULL && !in_region(block));
	CHECK(is_filled(block, 2 * LARGE, 4));
	/* The block was large and private, and stays so. */
	block = change(block, LARGE);
	CHECK(!in_region(block));
	CHECK(is_filled(block, LARGE, 4));
	give(block);
	block = get(LARGE);
	fill(block, LARGE, 5);
	CHECK(change(block, SIZE_MAX / 2) == NULL); /* and the block is still there */
	CHECK(is_filled(block, LARGE, 5));
	CHECK(change(block, 0) == NULL);
	give(wall);
	CHECK(used() == 0);
	close_side();
}

static void alignments(void)
{
	void *block = NULL;

	open_side();
	void *unaligned = get(LARGE + 5);
	for (size_t alignment = sizeof(void *); alignment <= 1024 * KIB; alignment *= 2) {
		CHECK(posix_memalign(&block, alignment, LARGE) == 0);
		CHECK(in_region(block));
		CHECK((uintptr_t)block % alignment == 0);
		fill(block, LARGE, 1);
		give(block);
		block = aligned_alloc(alignment, LARGE / alignment * alignment + alignment);
		CHECK(in_region(block));
		CHECK((uintptr_t)block % alignment == 0);
		give(block);
		block = memalign(alignment, LARGE);
		CHECK((uintptr_t)block % alignment == 0);
		give(block);
	}
	CHECK(posix_memalign(&block, 24, LARGE) == EINVAL);
	CHECK(posix_memalign(&block, 4, LARGE) == EINVAL);
	block = valloc(LARGE);
	CHECK(in_region(block));
	give(block);
	block = pvalloc(LARGE + 1);
	CHECK(in_region(block));
	CHECK(malloc_usable_size(block) == LARGE + 4096);
	give(block);
	give(unaligned);
	CHECK(used() == 0);
	close_side();
}

/* When the heap is full, memory is private as usual. */
static void full(void)
{
	void *blocks[1000];
	int inside = 0;

	open_side();
	for (int i = 0; i < 1000; i++) {
		blocks[i] = get(LARGE);
		CHECK(blocks[i] != NULL);
		memset(blocks[i], i, LARGE);
		inside += in_region(blocks[i]);
		if (i >= 100 && !in_region(blocks[i]))
			blocks[i] = (give(blocks[i]), NULL);
	}
	CHECK(inside > 50 && inside < 1000);
	for (int i = 0; i < 1000; i++)
		give(blocks[i]);
	CHECK(used() == 0);
	close_side();
}

/* The provider's own memory is never in the region, where a peer could write it. */
static void own_memory(void)
{
	struct fi_cq_attr queue = {.format = FI_CQ_FORMAT_TAGGED, .size = 65536};
	struct fid_cq *queues[8];

	open_side();
	for (int i = 0; i < 8; i++) {
		CHECK(fi_cq_open(side.domain, &queue, &queues[i], NULL) == 0);
		CHECK(used() == 0);
	}
	for (int i = 0; i < 8; i++)
		CHECK(fi_close(&queues[i]->fid) == 0);
	close_side();
}

/* ---- threads ---- */

#define THREADS 4
#define SHELF 64

struct entry {
	unsigned char *block;
	size_t bytes;
	unsigned seed;
};

static struct entry shelf[SHELF];
static pthread_mutex_t shelf_mutex = PTHREAD_MUTEX_INITIALIZER;

static uint32_t below(uint64_t *random, uint32_t limit)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return (uint32_t)(*random >> 11) % limit;
}

/* Blocks change hands: one thread allocates a block, another grows it, and a third frees it. */
static void *work(void *argument)
{
	uint64_t random = (uintptr_t)argument;

	for (int round = 0; round < 2500; round++) {
		struct entry mine = {.bytes = 1 + below(&random, 160 * KIB), .seed = below(&random, 256)};
		mine.block = below(&random, 2) == 0 ? get(mine.bytes) : get_zeros(1, mine.bytes);
		CHECK(mine.block != NULL);
		fill(mine.block, mine.bytes, mine.seed);
		uint32_t index = below(&random, SHELF);
		(void)pthread_mutex_lock(&shelf_mutex);
		struct entry other = shelf[index];
		shelf[index] = mine;
		(void)pthread_mutex_unlock(&shelf_mutex);
		if (other.block == NULL)
			continue;
		CHECK(is_filled(other.block, other.bytes, other.seed));
		if (below(&random, 3) == 0) {
			size_t bytes = 1 + below(&random, 300 * KIB);
			other.block = change(other.block, bytes);
			CHECK(other.block != NULL);
			CHECK(is_filled(other.block, bytes < other.bytes ? bytes : other.bytes, other.seed));
		}
		give(other.block);
	}
	return NULL;
}

static void threads(void)
{
	pthread_t running[THREADS];

	open_side();
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&running[i], NULL, work, (void *)(i + 1)) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(running[i], NULL) == 0);
	CHECK(used() > 0);
	for (int i = 0; i < SHELF; i++)
		give(shelf[i].block);
	CHECK(used() == 0);
	close_side();
}

/* ---- forks ---- */

static void check_child(pid_t child)
{
	int status = 0;

	CHECK(child > 0);
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(status == 0);
}

static void forks(void)
{
	open_side();
	unsigned char *block = get(LARGE);
	fill(block, LARGE, 1);
	pid_t child = fork();
	if (child == 0) {
		CHECK(is_filled(block, LARGE, 1));
		fill(block, LARGE, 2);
		CHECK(is_filled(block, LARGE, 2));
		unsigned char *own = get(LARGE);
		CHECK(own != NULL && !in_region(own));
		/* A child of the child sees the same blocks. */
		child = fork();
		if (child == 0)
			_exit(is_filled(block, LARGE, 2) ? 0 : 1);
		check_child(child);
		block = change(block, 2 * LARGE);
		CHECK(is_filled(block, LARGE, 2));
		give(block);
		give(own);
		exit(0); /* with all exit handlers */
	}
	check_child(child);
	CHECK(is_filled(block, LARGE, 1));
	CHECK(used() == LARGE);
	/* A child that runs another program. */
	CHECK(system("exit 0") == 0); /* NOLINT(cert-env33-c): what many programs do */
	child = fork();
	if (child == 0) {
		(void)execlp("true", "true", (char *)NULL);
		_exit(1);
	}
	check_child(child);
	CHECK(in_region(get(LARGE)));
	give(block);
	close_side();
}

static void *allocate_until_told(void *argument)
{
	while (!*(volatile bool *)argument)
		give(get(LARGE));
	return NULL;
}

/* At the moment of the fork other threads allocate: the child must not wait for their locks. */
static void forks_among_threads(void)
{
	pthread_t running;
	bool stop = false;

	open_side();
	CHECK(pthread_create(&running, NULL, allocate_until_told, &stop) == 0);
	for (int i = 0; i < 50; i++) {
		pid_t child = fork();
		if (child == 0) {
			void *own = get(LARGE);
			CHECK(own != NULL);
			give(own);
			_exit(0);
		}
		check_child(child);
	}
	*(volatile bool *)&stop = true;
	CHECK(pthread_join(running, NULL) == 0);
	close_side();
}

/* ---- after the end ---- */

static void wait_for_a_line(const char *say)
{
	char line[16];

	(void)printf("%s\n", say);
	(void)fflush(stdout);
	CHECK(fgets(line, sizeof(line), stdin) != NULL);
}

/* The test reads the state of the region at each line. */
static void outlived(void)
{
	open_side();
	unsigned char *first = get(LARGE);
	unsigned char *second = get(LARGE);
	fill(first, LARGE, 1);
	close_side();
	CHECK(is_filled(first, LARGE, 1));
	CHECK(!in_region(get(LARGE)));
	wait_for_a_line("closed");
	give(second);
	first = change(first, LARGE / 2);
	wait_for_a_line("one left");
	CHECK(is_filled(first, LARGE / 2, 1));
	first = change(first, 3 * LARGE); /* to private memory; nothing is left in the region */
	CHECK(!in_region(first));
	CHECK(is_filled(first, LARGE / 2, 1));
	wait_for_a_line("none left");
	give(first);
	/* Another endpoint. */
	open_side();
	first = get(LARGE);
	CHECK(in_region(first));
	close_side();
	wait_for_a_line("held");
}

/* Endpoints come and go, and each leaves a block: their slots must become free again. */
static void many_lives(void)
{
	open_domain();
	unsigned char *kept = NULL;
	for (unsigned round = 0; round < 30; round++) {
		open_endpoint();
		unsigned char *block = get(LARGE);
		CHECK(in_region(block));
		CHECK(is_zero(block, LARGE)); /* not the former contents */
		fill(block, LARGE, round);
		close_endpoint();
		if (kept != NULL)
			CHECK(is_filled(kept, LARGE, round - 1));
		give(kept);
		kept = block;
	}
	give(kept);
	CHECK(fi_close(&side.domain->fid) == 0);
	CHECK(fi_close(&side.fabric->fid) == 0);
	fi_freeinfo(side.info);
}

/* ---- another process writes into the heaps ---- */

/*
 * Send a message from one block to another, through the endpoint's ring to itself. Returns whether it is
 * unchanged.
 */
static bool pass_on(fi_addr_t self, unsigned char *out, unsigned char *in, size_t bytes, unsigned seed)
{
	struct fi_cq_tagged_entry entries[2];
	ssize_t done = 0;

	fill(out, bytes, seed);
	CHECK(fi_trecv(side.endpoint, in, bytes, NULL, FI_ADDR_UNSPEC, seed, 0, NULL) == 0);
	CHECK(fi_tsend(side.endpoint, out, bytes, NULL, self, seed, NULL) == 0);
	while (done < 2) {
		ssize_t count = fi_cq_read(side.cq, entries, 2);
		CHECK(count > 0 || count == -FI_EAGAIN);
		done += count > 0 ? count : 0;
	}
	return is_filled(in, bytes, seed);
}

/*
 * Allocate, send and free for three seconds, while the test overwrites all heaps of the region. Only data may
 * be spoilt.
 */
static void scribbled(void)
{
	unsigned char *blocks[8] = {NULL};
	char name[64];
	size_t length = sizeof(name);
	fi_addr_t self = FI_ADDR_UNSPEC;
	uint64_t random = (uint64_t)getpid();
	unsigned rounds = 0;
	unsigned spoilt = 0;

	open_side();
	CHECK(fi_getname(&side.endpoint->fid, name, &length) == 0);
	CHECK(fi_av_insert(side.av, name, 1, &self, 0, NULL) == 1);
	(void)printf("ready\n");
	(void)fflush(stdout);
	for (time_t until = time(NULL) + 3; time(NULL) < until; rounds++) {
		size_t bytes = 64 * KIB + below(&random, 300 * KIB);
		unsigned char **kept = &blocks[below(&random, 8)];
		*kept = change(*kept, bytes);
		CHECK(*kept != NULL);
		unsigned char *out = get(bytes);
		unsigned char *in = get_zeros(1, bytes);
		CHECK(out != NULL && in != NULL);
		spoilt += !pass_on(self, out, in, bytes, rounds % 256);
		give(out);
		give(in);
	}
	for (int i = 0; i < 8; i++)
		give(blocks[i]);
	CHECK(used() == 0);
	close_side();
	(void)printf("spoilt=%d rounds=%u\n", spoilt > 0, rounds);
}

/* With a region that has no heaps. */
static void heapless(void)
{
	uint64_t bytes = 0;
	void *block = NULL;

	open_side();
	CHECK(side.heap->allocate(side.endpoint, 1, 1, &block) == -FI_EOPNOTSUPP);
	CHECK(side.heap->query(side.endpoint, &bytes, &bytes) == -FI_EOPNOTSUPP);
	CHECK(side.heap->release(&bytes) == -FI_EINVAL);
	block = get(LARGE);
	CHECK(block != NULL && !in_region(block));
	give(block);
	close_side();
}

static void twice_freed(void)
{
	open_side();
	void *block = get(LARGE);
	void *other = get(LARGE);
	give(block);
	give(block);
	give(other);
}

static const struct {
	const char *name;
	void (*run)(void);
} scenarios[] = {
	{"place", place},
	{"zeros", zeros},
	{"reallocations", reallocations},
	{"alignments", alignments},
	{"full", full},
	{"own_memory", own_memory},
	{"threads", threads},
	{"forks", forks},
	{"forks_among_threads", forks_among_threads},
	{"outlived", outlived},
	{"many_lives", many_lives},
	{"scribbled", scribbled},
	{"heapless", heapless},
	{"twice_freed", twice_freed},
};

int main(int count, char **arguments)
{
	for (size_t i = 0; count == 2 && i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
		if (strcmp(arguments[1], scenarios[i].name) != 0)
			continue;
		scenarios[i].run();
		(void)printf("ok %s\n", scenarios[i].name);
		return 0;
	}
	(void)fprintf(stderr, "usage: preloaded SCENARIO\n");
	return 2;
}
