/* SPDX-License-Identifier: BSD-3-Clause */
/* Sparse heaps: pages are reserved when they are allocated, given back when they are freed, and never fault.
 */
#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MEMBERS 3U
#define MIB (UINT64_C(1) << 20)
#define HEAP_BYTES (256 * MIB)
#define SECTION_BYTES (WORLD_SECTION_BYTES + HEAP_BYTES)
#define KEPT_BYTES ((uint64_t)BACKING_KEPT_PAGES * REGION_PAGE)
#define HUGE (2 * MIB)
/* 1 << 21 bytes, from linux/memfd.h, which does not go with glibc's headers. */
#define MEMFD_HUGE (21U << 26)
/* A byte more or less: a file system may need blocks for its own lists. */
#define SLACK (MIB / 4)

static char notice[sizeof(struct region_error)];
static uint32_t notices;

static void take_notice(const char *text)
{
	(void)snprintf(notice, sizeof(notice), "%s", text);
	notices++;
}

static void reserve(int fd, uint64_t offset, uint64_t bytes)
{
	assert_int_equal(posix_fallocate(fd, (off_t)offset, (off_t)bytes), 0);
}

/* Make the file a region with sparse heaps, as `vicinal region create` does, and map it. */
static struct region *make_region(int fd, uint64_t section_bytes, uint64_t heap_bytes, uint64_t unit)
{
	const uint64_t id[2] = {7, 8};
	struct region *region = calloc(1, sizeof(*region));
	struct region_error error;

	assert_non_null(region);
	region->kind = REGION_FILE;
	region->fd = fd;
	region->notice = take_notice;
	region->bytes = (region_size(MEMBERS, section_bytes) + unit - 1) / unit * unit;
	(void)snprintf(region->path, sizeof(region->path), "/test");
	assert_int_equal(ftruncate(fd, (off_t)region->bytes), 0);
	reserve(fd, 0, REGION_SECTIONS_OFFSET(MEMBERS));
	for (uint64_t slot = 0; slot < MEMBERS; slot++)
		reserve(fd, REGION_SECTIONS_OFFSET(MEMBERS) + slot * section_bytes,
			section_bytes - heap_bytes);
	void *base = mmap(NULL, region->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	assert_ptr_not_equal(base, MAP_FAILED);
	region->base = base;
	assert_int_equal(region_format_heaps(base, region->bytes, MEMBERS, section_bytes, heap_bytes, id), 0);
	shared_store_u32(&((struct region_header *)base)->sparse_heaps, 1);
	assert_int_equal(region_check_header(base, region->bytes, region, &error), 0);
	assert_true(region->sparse_heaps);
	return region;
}

static struct region *open_region(void)
{
	int fd = memfd_create("vicinal-sparse", MFD_CLOEXEC);

	assert_true(fd >= 0);
	return make_region(fd, SECTION_BYTES, HEAP_BYTES, REGION_PAGE);
}

static struct heap *heap_at(const struct node *node)
{
	return node->messenger->transport->heap;
}

static uint64_t reserved(const struct region *region)
{
	struct stat status;

	assert_int_equal(fstat(region->fd, &status), 0);
	return (uint64_t)status.st_blocks * 512;
}

static void assert_about(uint64_t value, uint64_t expected)
{
	assert_in_range(value, expected - SLACK, expected + SLACK);
}

static bool is_filled(const unsigned char *bytes, size_t length, unsigned char with)
{
	for (size_t i = 0; i < length; i++)
		if (bytes[i] != with)
			return false;
	return true;
}

static void test_pages_are_reserved_when_allocated_and_given_back(void **state)
{
	struct region *region = open_region();
	uint64_t tables = reserved(region);
	struct node node;

	(void)state;
	assert_in_range(tables, 1, MEMBERS * WORLD_SECTION_BYTES + MIB);
	node_open(&node, region);
	assert_about(reserved(region), tables);
	/* Reserved before the application touches anything. */
	unsigned char *small = heap_allocate(heap_at(&node), MIB, 1, false);
	assert_about(reserved(region), tables + MIB);
	unsigned char *large = heap_allocate(heap_at(&node), 100 * MIB, 1, false);
	assert_about(reserved(region), tables + 101 * MIB);
	assert_true(is_filled(large, 100 * MIB, 0));
	/* A little that is freed stays for the next allocation. */
	assert_true(heap_release(small));
	assert_about(reserved(region), tables + 101 * MIB);
	assert_ptr_equal(heap_allocate(heap_at(&node), MIB, 1, false), small);
	assert_about(reserved(region), tables + 101 * MIB);
	/* Much goes back at once, also of a block that shrinks. */
	memset(large, 1, 100 * MIB);
	assert_true(heap_resize(large, 60 * MIB));
	assert_about(reserved(region), tables + 61 * MIB);
	assert_true(is_filled(large, 60 * MIB, 1));
	assert_true(heap_resize(large, 100 * MIB));
	assert_about(reserved(region), tables + 101 * MIB);
	assert_true(is_filled(large + 60 * MIB, 40 * MIB, 0));
	assert_true(heap_release(large));
	assert_about(reserved(region), tables + MIB);
	assert_true(heap_release(small));
	/* Nothing is left when the member has left. */
	node_close(&node);
	assert_about(reserved(region), tables);
	region_detach(region);
}

/* calloc() of new pages touches nothing, and of used pages clears them. */
static void test_cleared_blocks_are_clear(void **state)
{
	struct region *region = open_region();
	struct node node;

	(void)state;
	node_open(&node, region);
	unsigned char *block = heap_allocate(heap_at(&node), 4 * MIB, 1, true);
	assert_true(is_filled(block, 4 * MIB, 0));
	memset(block, 1, 4 * MIB);
	assert_true(heap_release(block));
	unsigned char *again = heap_allocate(heap_at(&node), 8 * MIB, 1, true);
	assert_ptr_equal(again, block);
	assert_true(is_filled(again, 8 * MIB, 0));
	assert_true(heap_release(again));
	node_close(&node);
	region_detach(region);
}

/* Pages of many small blocks go back in long runs, and pages between blocks too. */
static void test_small_blocks_keep_a_bounded_amount(void **state)
{
	enum { BLOCKS = 1600 };
	static void *blocks[BLOCKS];
	struct region *region = open_region();
	uint64_t tables = reserved(region);
	struct node node;

	(void)state;
	node_open(&node, region);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		blocks[i] = heap_allocate(heap_at(&node), MIB / 16, 1, false);
		assert_non_null(blocks[i]);
		memset(blocks[i], (int)(i % 251), MIB / 16);
	}
	assert_about(reserved(region), tables + 100 * MIB);
	for (uint32_t i = 0; i < BLOCKS; i += 2)
		assert_true(heap_release(blocks[i]));
	assert_in_range(reserved(region), tables + 50 * MIB, tables + 50 * MIB + KEPT_BYTES + SLACK);
	for (uint32_t i = 1; i < BLOCKS; i += 2) {
		assert_true(is_filled(blocks[i], MIB / 16, (unsigned char)(i % 251)));
		assert_true(heap_release(blocks[i]));
	}
	assert_in_range(reserved(region), tables, tables + KEPT_BYTES + SLACK);
	node_close(&node);
	region_detach(region);
}

/* A process that is killed leaves reserved pages with data. The next occupant gives them back first. */
static void test_a_successor_finds_zeros_and_no_reserved_pages(void **state)
{
	struct region *region = open_region();
	uint64_t tables = reserved(region);
	struct node nodes[MEMBERS];
	int status = 0;

	(void)state;
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		for (uint32_t i = 0; i < MEMBERS; i++) {
			node_open(&nodes[i], region);
			unsigned char *block = heap_allocate(heap_at(&nodes[i]), 20 * MIB, 1, false);
			memset(block, 0xee, 20 * MIB);
		}
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_about(reserved(region), tables + 60 * MIB);
	for (uint32_t i = 0; i < MEMBERS; i++) {
		node_open(&nodes[i], region);
		unsigned char *block = heap_allocate(heap_at(&nodes[i]), 10 * MIB, 1, false);
		assert_about(reserved(region), tables + (60 - 10 * (i + 1)) * MIB);
		assert_true(is_filled(block, 10 * MIB, 0));
		assert_true(heap_release(block));
	}
	for (uint32_t i = 0; i < MEMBERS; i++)
		node_close(&nodes[i]);
	assert_about(reserved(region), tables);
	region_detach(region);
}

/* A peer that comes too late reads zeros, and its store harms nobody. */
static void test_a_late_access_finds_zeros(void **state)
{
	struct region *region = open_region();
	struct node node;

	(void)state;
	node_open(&node, region);
	unsigned char *block = heap_allocate(heap_at(&node), 100 * MIB, 1, false);
	memset(block, 5, 100 * MIB);
	void *other = mmap(NULL, region->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd, 0);
	assert_ptr_not_equal(other, MAP_FAILED);
	unsigned char *there = (unsigned char *)other + (block - region->base);
	assert_int_equal(there[50 * MIB], 5);
	assert_true(heap_release(block));
	assert_int_equal(there[50 * MIB], 0);
	there[50 * MIB] = 9;
	unsigned char *again = heap_allocate(heap_at(&node), 100 * MIB, 1, true);
	assert_ptr_equal(again, block);
	assert_true(is_filled(again, 100 * MIB, 0));
	assert_true(heap_release(again));
	assert_int_equal(munmap(other, region->bytes), 0);
	node_close(&node);
	region_detach(region);
}

static void test_an_evicted_member_gives_nothing_back(void **state)
{
	struct region *region = open_region();
	struct node node;

	(void)state;
	node_open(&node, region);
	struct heap *heap = heap_at(&node);
	unsigned char *block = heap_allocate(heap, 100 * MIB, 1, false);
	memset(block, 6, 100 * MIB);
	shared_u64 *claim = &region_slot(region, node_slot(&node))->claim;
	uint64_t own = shared_load_u64(claim);
	assert_true(shared_claim_u64(claim, own, own + (UINT64_C(1) << 32)));
	/* These pages are a successor's now. */
	assert_true(heap_resize(block, 50 * MIB));
	assert_true(heap_release(block));
	assert_true(is_filled(block, 100 * MIB, 6));
	assert_null(heap_allocate(heap, 200 * MIB, 1, false));
	assert_int_equal(notices, 0);
	node_close(&node);
	assert_true(is_filled(block, 100 * MIB, 6));
	region_detach(region);
}

/* What a child wrote stays the child's when the parent frees the block. */
static void test_a_child_keeps_what_it_wrote(void **state)
{
	struct region *region = open_region();
	struct node node;
	int go[2];
	int ready[2];
	int status = 0;
	char byte = 0;

	(void)state;
	node_open(&node, region);
	unsigned char *block = heap_allocate(heap_at(&node), 100 * MIB, 1, false);
	memset(block, 1, 100 * MIB);
	assert_int_equal(pipe(go), 0);
	assert_int_equal(pipe(ready), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		memset(block, 2, 50 * MIB);
		if (write(ready[1], "", 1) != 1 || read(go[0], &byte, 1) != 1)
			_exit(2);
		bool good = is_filled(block, 50 * MIB, 2) && heap_release(block);
		_exit(good && is_filled(block, 50 * MIB, 2) ? 0 : 1);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_true(is_filled(block, 100 * MIB, 1));
	assert_true(heap_release(block));
	unsigned char *again = heap_allocate(heap_at(&node), 100 * MIB, 1, true);
	memset(again, 3, 100 * MIB);
	assert_int_equal(write(go[1], "", 1), 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_true(is_filled(again, 100 * MIB, 3));
	assert_true(heap_release(again));
	node_close(&node);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(close(go[i]), 0);
		assert_int_equal(close(ready[i]), 0);
	}
	region_detach(region);
}

static void ignore(int number)
{
	(void)number;
}

/* A timer interrupts each call that reserves pages, which begin anew on tmpfs of older kernels. */
static void test_signals_do_not_stop_a_reservation(void **state)
{
	const struct itimerval often = {.it_interval = {.tv_usec = 100}, .it_value = {.tv_usec = 100}};
	const struct itimerval never = {.it_value = {0}};
	struct region *region = open_region();
	struct node node;

	(void)state;
	node_open(&node, region);
	assert_ptr_not_equal(signal(SIGALRM, ignore), SIG_ERR);
	assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
	unsigned char *block = heap_allocate(heap_at(&node), 200 * MIB, 1, false);
	assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
	assert_ptr_not_equal(signal(SIGALRM, SIG_DFL), SIG_ERR);
	assert_non_null(block);
	assert_true(heap_release(block));
	node_close(&node);
	region_detach(region);
}

/* Without a lock, threads reserve pages and give them back. */
enum { THREADS = 4, ROUNDS = 40 };

static void *allocate_and_free(void *argument)
{
	struct heap *heap = argument;
	uint64_t random = (uintptr_t)&random;

	for (uint32_t round = 0; round < ROUNDS; round++) {
		random = random * UINT64_C(6364136223846793005) + 1442695040888963407U;
		size_t bytes = (size_t)(random >> 33) % (40 * MIB) + 1;
		unsigned char with = (unsigned char)(random >> 40 | 1);
		unsigned char *block = heap_allocate(heap, bytes, 1, (round & 1) != 0);
		if (block == NULL)
			continue;
		block[0] = block[bytes / 2] = block[bytes - 1] = with;
		if ((round & 2) != 0)
			(void)heap_resize(block, bytes / 2 + 1);
		if (block[0] != with || !heap_release(block))
			return block;
	}
	return NULL;
}

static void test_threads_reserve_and_give_back(void **state)
{
	struct region *region = open_region();
	uint64_t tables = reserved(region);
	pthread_t threads[THREADS];
	struct node node;

	(void)state;
	node_open(&node, region);
	for (uint32_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, allocate_and_free, heap_at(&node)), 0);
	for (uint32_t i = 0; i < THREADS; i++) {
		void *wrong = NULL;
		assert_int_equal(pthread_join(threads[i], &wrong), 0);
		assert_null(wrong);
	}
	assert_int_equal(heap_used(heap_at(&node)), 0);
	assert_in_range(reserved(region), tables, tables + KEPT_BYTES + SLACK);
	node_close(&node);
	assert_about(reserved(region), tables);
	region_detach(region);
}

/* No access is possible that the guest's host has no memory for. */
static void test_a_guest_has_no_sparse_heap(void **state)
{
	struct region *region = open_region();
	struct heap *heap = NULL;
	struct region_error error;
	const struct member member = {.region = region};

	(void)state;
	region->kind = REGION_PCI;
	assert_int_equal(heap_open(&heap, &member, &error), 0);
	assert_null(heap);
	region->kind = REGION_FILE;
	region_detach(region);
}

/* ---- a file system that is full ---- */

/* Returns a directory with a tmpfs of 16 MiB, that only this process sees; NULL if none can be mounted. */
static const char *small_tmpfs(void)
{
	static char directory[] = "/tmp/vicinal-sparse-XXXXXX";
	int flags = geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER;

	if (unshare(flags) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
	    mkdtemp(directory) == NULL)
		return NULL;
	if (mount("vicinal-test", directory, "tmpfs", 0, "size=16M") != 0) {
		(void)rmdir(directory);
		return NULL;
	}
	return directory;
}

enum { DONE = 0, FAILED = 1, NOT_POSSIBLE = 77 };

/* Without the handler of guard.h, a SIGBUS ends this process. */
static int fill_small_tmpfs(void)
{
	const char *directory = small_tmpfs();
	const struct timespec pause = {.tv_nsec = 10000000};
	char path[64];
	struct node node;
	void *blocks[300];
	uint32_t count = 0;

	if (directory == NULL)
		return NOT_POSSIBLE;
	(void)snprintf(path, sizeof(path), "%s/region", directory);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	struct region *region = make_region(fd, SECTION_BYTES, HEAP_BYTES, REGION_PAGE);
	node_open(&node, region);
	unsigned char *first = heap_allocate(heap_at(&node), 2 * MIB, 1, false);
	memset(first, 1, 2 * MIB);
	/* The heap has room, the file system has none: the same answer as from a full heap. */
	uint64_t before = reserved(region);
	if (notices != 0 || heap_allocate(heap_at(&node), 100 * MIB, 1, false) != NULL ||
	    heap_resize(first, 100 * MIB) || heap_block_bytes(first) != 2 * MIB || notices != 1 ||
	    strstr(notice, "No space left on device") == NULL || strstr(notice, "remove files") == NULL ||
	    reserved(region) != before || heap_used(heap_at(&node)) != 2 * MIB)
		return FAILED;
	/* Smaller blocks fit until nothing is left, and all of them may be used. */
	while ((blocks[count] = heap_allocate(heap_at(&node), MIB / 16, 1, false)) != NULL)
		memset(blocks[count++], 2, MIB / 16);
	if (count < 100 || !is_filled(first, 2 * MIB, 1))
		return FAILED;
	/* With room again, allocations succeed after a moment. */
	uint32_t left = count;
	while (left > 0)
		if (!heap_release(blocks[--left]))
			return FAILED;
	void *block = NULL;
	for (int i = 0; i < 6000 && block == NULL; i++) {
		block = heap_allocate(heap_at(&node), 4 * MIB, 1, false);
		(void)nanosleep(&pause, NULL);
	}
	if (block == NULL || notices != 1 || !heap_release(block) || !heap_release(first))
		return FAILED;
	node_close(&node);
	region_detach(region);
	return unlink(path) == 0 && umount(directory) == 0 && rmdir(directory) == 0 ? DONE : FAILED;
}

static void test_a_full_file_system_is_a_full_heap(void **state)
{
	int status = 0;

	(void)state;
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(fill_small_tmpfs());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == NOT_POSSIBLE) {
		print_message("skipped: this user may not mount a tmpfs in a namespace\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), DONE);
}

/* ---- huge pages ---- */

/* Returns a file with all huge pages that are free, except `count`. */
static int take_huge_pages_but(uint64_t count)
{
	int fd = memfd_create("vicinal-others", MFD_CLOEXEC | MFD_HUGETLB | MEMFD_HUGE);
	uint64_t taken = 0;

	assert_true(fd >= 0);
	while (fallocate(fd, 0, (off_t)(taken * HUGE), (off_t)HUGE) == 0)
		taken++;
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)(count * HUGE)),
			 0);
	return fd;
}

static void test_huge_pages_are_reserved_whole(void **state)
{
	const uint64_t heap_bytes = 64 * MIB + 3 * REGION_PAGE; /* begins and ends inside of huge pages */
	const uint64_t section_bytes = WORLD_SECTION_BYTES + heap_bytes;
	int fd = memfd_create("vicinal-huge", MFD_CLOEXEC | MFD_HUGETLB | MEMFD_HUGE);
	struct node node;

	(void)state;
	/* Reserve, with room for the rest of the test. */
	if (fd < 0 || fallocate(fd, 0, 0, (off_t)(80 * MIB)) != 0) {
		print_message("skipped: the machine has no 40 free huge pages of 2 MiB (vm.nr_hugepages)\n");
		(void)close(fd);
		skip();
	}
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)(80 * MIB)), 0);
	struct region *region = make_region(fd, section_bytes, heap_bytes, HUGE);
	uint64_t tables = reserved(region);
	node_open(&node, region);
	struct heap *heap = heap_at(&node);
	unsigned char *block = heap_allocate(heap, 100, 1, false);
	assert_non_null(block);
	/* Pages in the same huge page need no other. */
	uint64_t with_one = reserved(region);
	assert_in_range(with_one, tables, tables + 2 * HUGE);
	unsigned char *next = heap_allocate(heap, 100, 1, false);
	assert_int_equal(reserved(region), with_one);
	unsigned char *large = heap_allocate(heap, 50 * MIB, 1, false);
	assert_non_null(large);
	memset(large, 4, 50 * MIB);
	assert_true(reserved(region) >= tables + 48 * MIB);
	assert_true(heap_release(large));
	assert_true(reserved(region) <= with_one + 2 * HUGE);
	/* More than there is: no block, and no part of it stays reserved. */
	uint64_t before = reserved(region);
	int others = take_huge_pages_but(3);
	assert_null(heap_allocate(heap, 12 * MIB, 1, false));
	assert_int_equal(reserved(region), before);
	assert_int_equal(close(others), 0);
	assert_int_equal(block[0] + next[0], 0);
	assert_true(heap_release(next));
	assert_true(heap_release(block));
	node_close(&node);
	assert_true(reserved(region) <= tables + 2 * HUGE);
	region_detach(region);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pages_are_reserved_when_allocated_and_given_back),
		cmocka_unit_test(test_cleared_blocks_are_clear),
		cmocka_unit_test(test_small_blocks_keep_a_bounded_amount),
		cmocka_unit_test(test_a_successor_finds_zeros_and_no_reserved_pages),
		cmocka_unit_test(test_a_late_access_finds_zeros),
		cmocka_unit_test(test_an_evicted_member_gives_nothing_back),
		cmocka_unit_test(test_a_child_keeps_what_it_wrote),
		cmocka_unit_test(test_signals_do_not_stop_a_reservation),
		cmocka_unit_test(test_threads_reserve_and_give_back),
		cmocka_unit_test(test_a_guest_has_no_sparse_heap),
		cmocka_unit_test(test_a_full_file_system_is_a_full_heap),
		cmocka_unit_test(test_huge_pages_are_reserved_whole),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
