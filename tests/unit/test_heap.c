/* SPDX-License-Identifier: BSD-3-Clause */
/* Heaps in a region: bounds, zeros, threads, forks, and blocks that outlive their endpoint. */
#include "world.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMBERS 3U
#define HEAP_PAGES 64U
#define HEAP_BYTES ((uint64_t)HEAP_PAGES * REGION_PAGE)
#define SECTION_BYTES (WORLD_SECTION_BYTES + HEAP_BYTES)

static struct region *region;

static int open_region(void **state)
{
	(void)state;
	region = world_region_with_heaps(MEMBERS, SECTION_BYTES, HEAP_BYTES);
	return 0;
}

static int close_region(void **state)
{
	(void)state;
	region_detach(region);
	return 0;
}

static struct heap *heap_at(const struct node *node)
{
	return node->messenger->transport->heap;
}

static uint32_t slot_state(uint32_t slot)
{
	return (uint32_t)shared_load_u64(&region_slot(region, slot)->claim);
}

static bool is_zero(const unsigned char *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (bytes[i] != 0)
			return false;
	return true;
}

static void test_blocks_are_found_in_our_own_section(void **state)
{
	struct node node;

	(void)state;
	node_open(&node, region);
	struct heap *heap = heap_at(&node);
	unsigned char *block = heap_allocate(heap, 10000, 1, false);
	assert_non_null(block);
	uint64_t offset = heap_find(heap, block, 10000);
	assert_ptr_equal(section_view(region, node_slot(&node), offset, 10000), block);
	assert_true(offset >= section_arena_end(region));
	assert_int_equal(heap_block_bytes(block), 3 * REGION_PAGE);
	assert_int_equal(heap_used(heap), 3 * REGION_PAGE);
	/* Up to the last byte of the heap, and no further. */
	assert_int_equal(heap_find(heap, heap->base, HEAP_BYTES), section_arena_end(region));
	assert_int_equal(heap_find(heap, heap->base, HEAP_BYTES + 1), HEAP_NONE);
	assert_int_equal(heap_find(heap, heap->base + HEAP_BYTES - 1, 1), region->section_bytes - 1);
	assert_int_equal(heap_find(heap, heap->base + HEAP_BYTES - 1, 2), HEAP_NONE);
	assert_int_equal(heap_find(heap, heap->base - 1, 2), HEAP_NONE);
	assert_int_equal(heap_find(heap, &node, 1), HEAP_NONE);
	assert_int_equal(heap_find(heap, heap->base + 1, SIZE_MAX), HEAP_NONE);
	assert_int_equal(heap_find(NULL, heap->base, 1), HEAP_NONE);
	assert_true(heap_release(block));
	assert_false(heap_release(block));
	assert_false(heap_release(&node));
	assert_false(heap_release(heap->base + 1));
	assert_int_equal(heap_block_bytes(block), 0);
	node_close(&node);
	assert_int_equal(region_size(MEMBERS, SECTION_BYTES), region->bytes);
}

static void test_messages_and_blocks_keep_apart(void **state)
{
	struct world world = {.region = region, .count = 2};
	unsigned char *all;
	unsigned char *got = malloc(300000);
	unsigned char *sent = malloc(300000);

	(void)state;
	assert_non_null(got);
	assert_non_null(sent);
	for (uint32_t i = 0; i < 2; i++)
		node_open(&world.nodes[i], region);
	all = heap_allocate(heap_at(&world.nodes[0]), HEAP_BYTES, 1, false);
	assert_non_null(all);
	fill_bytes(all, HEAP_BYTES, 5);
	for (uint64_t round = 0; round < 20; round++) {
		size_t length = 1000 + round * 14000;
		fill_bytes(sent, length, round);
		assert_int_equal(node_receive(&world.nodes[1], NULL, got, length, round, FI_TAGGED, NULL), 0);
		assert_int_equal(
			node_send(&world.nodes[0], &world.nodes[1], sent, length, round, FI_TAGGED, NULL), 0);
		(void)world_await_good(&world, &world.nodes[1].receives);
		assert_bytes(got, length, round);
	}
	assert_bytes(all, HEAP_BYTES, 5);
	assert_true(heap_release(all));
	world_settle(&world);
	for (uint32_t i = 0; i < 2; i++)
		node_close(&world.nodes[i]);
	free(got);
	free(sent);
}

/* The data of a former occupant, or bytes that a peer wrote, are never given to the application. */
static void test_pages_are_clear_when_first_handed_out(void **state)
{
	struct node node;

	(void)state;
	for (uint32_t slot = 0; slot < MEMBERS; slot++)
		memset(region_section(region, slot) + section_arena_end(region), 0xee, HEAP_BYTES);
	node_open(&node, region);
	struct heap *heap = heap_at(&node);
	unsigned char *first = heap_allocate(heap, 5000, 1, false);
	assert_true(is_zero(first, 2 * REGION_PAGE));
	/* Alignment skips pages, which the next blocks get. */
	unsigned char *aligned = heap_allocate(heap, 5000, 16 * REGION_PAGE, false);
	assert_true(is_zero(aligned, 2 * REGION_PAGE));
	assert_int_equal((uintptr_t)aligned % (16 * REGION_PAGE), 0);
	unsigned char *between[HEAP_PAGES] = {NULL};
	uint32_t count = 0;
	while ((between[count] = heap_allocate(heap, 1, 1, false)) != NULL)
		assert_true(is_zero(between[count++], REGION_PAGE));
	assert_int_equal(count, HEAP_PAGES - 4);
	/* Pages that we used before need not be clear, unless the caller asks for it. */
	fill_bytes(between[7], REGION_PAGE, 7);
	assert_true(heap_release(between[7]));
	assert_ptr_equal(heap_allocate(heap, 100, 1, true), between[7]);
	assert_true(is_zero(between[7], REGION_PAGE));
	for (uint32_t i = 0; i < count; i++)
		assert_true(heap_release(between[i]));
	assert_true(heap_release(first));
	assert_true(heap_release(aligned));
	node_close(&node);
}

static void test_growing_takes_clear_pages_where_there_are_any(void **state)
{
	struct node node;

	(void)state;
	for (uint32_t slot = 0; slot < MEMBERS; slot++)
		memset(region_section(region, slot) + section_arena_end(region), 0xee, HEAP_BYTES);
	node_open(&node, region);
	struct heap *heap = heap_at(&node);
	unsigned char *block = heap_allocate(heap, 1, 1, false);
	memset(block, 0x11, REGION_PAGE);
	assert_true(heap_resize(block, 10 * REGION_PAGE));
	assert_true(is_zero(block + REGION_PAGE, 9 * REGION_PAGE));
	assert_int_equal(block[REGION_PAGE - 1], 0x11);
	unsigned char *wall = heap_allocate(heap, 1, 1, false);
	assert_false(heap_resize(block, 11 * REGION_PAGE));
	assert_true(heap_resize(block, 10 * REGION_PAGE - 1));
	assert_true(heap_resize(block, REGION_PAGE));
	assert_int_equal(heap_block_bytes(block), REGION_PAGE);
	assert_false(heap_resize(block, HEAP_BYTES + 1));
	assert_false(heap_resize(block, SIZE_MAX));
	assert_false(heap_resize(block + REGION_PAGE, 1));
	assert_true(heap_release(block));
	assert_true(heap_release(wall));
	node_close(&node);
}

static void test_what_is_too_much_is_refused(void **state)
{
	struct node node;

	(void)state;
	node_open(&node, region);
	struct heap *heap = heap_at(&node);
	assert_null(heap_allocate(heap, HEAP_BYTES + 1, 1, false));
	assert_null(heap_allocate(heap, SIZE_MAX, 1, false));
	assert_null(heap_allocate(heap, 1, SIZE_MAX / 2 + 1, false));
	assert_null(heap_allocate(heap, 1, 2 * HEAP_BYTES, false));
	/* No heap was shared. */
	assert_null(heap_allocate_shared(1, 1, false));
	heap_share(heap);
	void *all = heap_allocate_shared(HEAP_BYTES, 1, false);
	assert_ptr_equal(all, heap->base);
	assert_null(heap_allocate_shared(1, 1, false));
	assert_true(heap_release(all));
	node_close(&node);
	assert_null(heap_allocate_shared(1, 1, false));
}

static void test_a_region_without_heaps_has_none(void **state)
{
	struct region *bare = world_region(2, REGION_SECTION_MIN);
	struct node node;

	(void)state;
	node_open(&node, bare);
	assert_null(heap_at(&node));
	assert_null(heap_allocate_shared(1, 1, false));
	node_close(&node);
	region_detach(bare);
}

/* The endpoint is closed. Its slot is kept, and its peers see that it left. */
static void test_blocks_outlive_their_endpoint(void **state)
{
	struct node node;
	struct node other;
	struct node others[MEMBERS];
	struct region_error error;
	struct messenger *refused = NULL;

	(void)state;
	node_open(&node, region);
	node_open(&other, region);
	uint32_t slot = node_slot(&node);
	uint32_t epoch = node.messenger->transport->attachments[0].member->epoch;
	unsigned char *block = heap_allocate(heap_at(&node), 100000, 1, true);
	unsigned char *second = heap_allocate(heap_at(&node), 100, 1, false);
	fill_bytes(block, 100000, 3);
	heap_share(heap_at(&node));
	node_close(&node);
	assert_int_equal(slot_state(slot), SLOT_HELD);
	/* No more memory can be allocated there. */
	assert_null(heap_allocate_shared(1, 1, false));
	assert_false(heap_resize(second, 2 * REGION_PAGE));
	assert_true(heap_resize(block, 90000));
	assert_int_equal(heap_block_bytes(block), 22 * REGION_PAGE);
	struct last_heartbeat last_heartbeat = {0};
	assert_int_equal(member_observe(other.messenger->transport->attachments[0].member, slot, epoch,
					&last_heartbeat, monotonic_now(), 1),
			 MEMBER_LEFT);
	/* The other members take all free slots, and ours is not among them. */
	for (uint32_t i = 2; i < MEMBERS; i++)
		node_open(&others[i], region);
	assert_int_not_equal(messenger_open(&refused, region, 0, UINT64_C(1000000), &error), 0);
	assert_non_null(strstr(error.text, "full"));
	assert_bytes(block, 90000, 3);
	assert_true(heap_release(second));
	assert_int_equal(slot_state(slot), SLOT_HELD);
	/* The last release frees the slot. */
	assert_true(heap_release(block));
	assert_int_equal(slot_state(slot), SLOT_FREE);
	node_open(&node, region);
	assert_int_equal(node_slot(&node), slot);
	node_close(&node);
	for (uint32_t i = 2; i < MEMBERS; i++)
		node_close(&others[i]);
	node_close(&other);
}

/* The region may be detached before the block is released: the block stays mapped. */
static void test_blocks_outlive_their_region(void **state)
{
	struct node node;

	(void)state;
	node_open(&node, region);
	unsigned char *block = heap_allocate(heap_at(&node), 50000, 1, true);
	fill_bytes(block, 50000, 9);
	node_close(&node);
	/* For the other tests, map the same bytes again. */
	struct region *first = region;
	region = calloc(1, sizeof(*region));
	assert_non_null(region);
	*region = (struct region){.kind = first->kind,
				  .bytes = first->bytes,
				  .members = first->members,
				  .section_bytes = first->section_bytes,
				  .heap_bytes = first->heap_bytes,
				  .sections_offset = first->sections_offset};
	region->fd = dup(first->fd);
	region->base = mmap(NULL, region->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd, 0);
	assert_ptr_not_equal((void *)region->base, MAP_FAILED);
	region_detach(first);
	assert_bytes(block, 50000, 9);
	assert_true(heap_release(block));
}

/*
 * A process that ends while it only holds its slot. A child of it, if there is one, lives until a byte comes
 * from `end`.
 */
static uint32_t hold_a_slot_and_end(int end, bool with_child)
{
	int ends[2];
	uint32_t slot = 0;
	int status = 0;

	assert_int_equal(pipe(ends), 0);
	pid_t holder = fork();
	assert_true(holder >= 0);
	if (holder == 0) {
		struct node node;
		node_open(&node, region);
		slot = node_slot(&node);
		bool got = heap_allocate(heap_at(&node), 1, 1, false) != NULL;
		node_close(&node);
		/* The child goes on. */
		if (with_child && fork() != 0)
			_exit(got ? 0 : 1);
		(void)!write(ends[1], &slot, sizeof(slot));
		(void)alarm(600); /* only if the test died: ends the child */
		if (with_child)
			(void)!read(end, &slot, 1);
		_exit(got ? 0 : 1);
	}
	assert_int_equal(read(ends[0], &slot, sizeof(slot)), sizeof(slot));
	assert_int_equal(waitpid(holder, &status, 0), holder);
	assert_int_equal(status, 0);
	assert_int_equal(close(ends[0]), 0);
	assert_int_equal(close(ends[1]), 0);
	assert_int_equal(slot_state(slot), SLOT_HELD);
	return slot;
}

static void assert_can_be_taken(uint32_t slot)
{
	struct node nodes[MEMBERS];
	bool taken = false;

	for (uint32_t i = 0; i < MEMBERS; i++) {
		node_open(&nodes[i], region);
		taken = taken || node_slot(&nodes[i]) == slot;
	}
	assert_true(taken);
	for (uint32_t i = 0; i < MEMBERS; i++)
		node_close(&nodes[i]);
}

/* The kernel drops the lock, and another member may take the slot, even while a child of the holder lives. */
static void test_the_slot_of_a_dead_holder_is_free(void **state)
{
	int alive[2];

	(void)state;
	assert_can_be_taken(hold_a_slot_and_end(-1, false));
	assert_int_equal(pipe2(alive, O_CLOEXEC), 0);
	uint32_t slot = hold_a_slot_and_end(alive[0], true);
	assert_int_equal(close(alive[0]), 0);
	assert_can_be_taken(slot);
	/* The child lives, because the pipe still has a reader. */
	assert_int_equal(write(alive[1], "", 1), 1);
	assert_int_equal(close(alive[1]), 0);
}

/*
 * A child's writes do not reach the parent, blocks that the child releases stay, and the child can allocate
 * nothing.
 */
static void test_a_forked_child_disturbs_nothing(void **state)
{
	struct node node;
	int status = 0;

	(void)state;
	node_open(&node, region);
	struct heap *heap = heap_at(&node);
	heap_share(heap);
	unsigned char *block = heap_allocate(heap, 20000, 1, true);
	fill_bytes(block, 20000, 4);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		int wrong = 0;
		wrong += heap_allocate(heap, 1, 1, false) != NULL;
		wrong += heap_allocate_shared(1, 1, false) != NULL;
		wrong += heap_resize(block, 10);
		wrong += heap_block_bytes(block) != 5 * REGION_PAGE;
		wrong += block[19999] != (unsigned char)(19999 % 251 + 19999 / 251 * 7 + 4 * 31);
		memset(block, 0, 20000);
		wrong += !heap_release(block);
		wrong += heap_release(block + 1);
		node_close(&node);
		memset(block, 1, 20000); /* still mapped */
		_exit(wrong);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_bytes(block, 20000, 4);
	assert_int_equal(slot_state(node_slot(&node)), SLOT_JOINED);
	assert_int_equal(heap_block_bytes(block), 5 * REGION_PAGE);
	assert_true(heap_release(block));
	node_close(&node);
}

/* A child may open an endpoint of its own, with its own heap. */
static void test_a_forked_child_can_have_a_heap_of_its_own(void **state)
{
	struct node node;
	int status = 0;

	(void)state;
	node_open(&node, region);
	unsigned char *block = heap_allocate(heap_at(&node), 20000, 1, true);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct node own;
		node_open(&own, region);
		unsigned char *mine = heap_allocate(heap_at(&own), 20000, 1, true);
		bool good = mine != NULL && heap_find(heap_at(&own), mine, 20000) != HEAP_NONE &&
			    node_slot(&own) != node_slot(&node);
		good = good && heap_release(mine);
		node_close(&own);
		_exit(good ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_true(heap_release(block));
	node_close(&node);
}

/* A member that was taken for dead allocates no more memory, because its heap belongs to another member. */
static void test_an_evicted_endpoint_allocates_no_more(void **state)
{
	struct node node;

	(void)state;
	node_open(&node, region);
	struct heap *heap = heap_at(&node);
	uint32_t slot = node_slot(&node);
	unsigned char *block = heap_allocate(heap, 1, 1, false);
	uint64_t claim = shared_load_u64(&region_slot(region, slot)->claim);
	shared_store_u64(&region_slot(region, slot)->claim, claim + (UINT64_C(1) << 32));
	transport_check_peers(node.messenger->transport);
	assert_null(heap_allocate(heap, 1, 1, false));
	node_close(&node);
	assert_true(heap_release(block));
	/* The successor's claim word stays as it is. */
	assert_true(shared_load_u64(&region_slot(region, slot)->claim) == claim + (UINT64_C(1) << 32));
	shared_store_u64(&region_slot(region, slot)->claim, (claim >> 32 << 32) + (UINT64_C(1) << 32));
}

#define THREADS 4

static void *allocate_at_random(void *argument)
{
	uint64_t seed = *(const uint64_t *)argument;
	unsigned char *blocks[8] = {0};
	size_t lengths[8] = {0};
	uintptr_t wrong = 0;

	for (uint32_t round = 0; round < 4000; round++) {
		uint32_t i = random_below(&seed, 8);
		if (blocks[i] != NULL) {
			for (size_t at = 0; at < lengths[i]; at += REGION_PAGE)
				wrong += blocks[i][at] != (unsigned char)*(const uint64_t *)argument;
			wrong += !heap_release(blocks[i]);
			blocks[i] = NULL;
			continue;
		}
		lengths[i] = 1 + random_below(&seed, 4 * REGION_PAGE);
		blocks[i] = heap_allocate_shared(lengths[i], 1, true);
		if (blocks[i] != NULL) {
			wrong += blocks[i][lengths[i] - 1] != 0;
			memset(blocks[i], (int)*(const uint64_t *)argument, lengths[i]);
		}
	}
	for (uint32_t i = 0; i < 8; i++)
		if (blocks[i] != NULL)
			wrong += !heap_release(blocks[i]);
	return (void *)wrong;
}

static void test_threads_get_blocks_of_their_own(void **state)
{
	struct node node;
	pthread_t threads[THREADS];
	uint64_t seeds[THREADS];

	(void)state;
	node_open(&node, region);
	heap_share(heap_at(&node));
	for (uint64_t i = 0; i < THREADS; i++) {
		seeds[i] = i + 1;
		assert_int_equal(pthread_create(&threads[i], NULL, allocate_at_random, &seeds[i]), 0);
	}
	for (uint32_t i = 0; i < THREADS; i++) {
		void *wrong = NULL;
		assert_int_equal(pthread_join(threads[i], &wrong), 0);
		assert_null(wrong);
	}
	assert_int_equal(heap_used(heap_at(&node)), 0);
	node_close(&node);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocks_are_found_in_our_own_section),
		cmocka_unit_test(test_messages_and_blocks_keep_apart),
		cmocka_unit_test(test_pages_are_clear_when_first_handed_out),
		cmocka_unit_test(test_growing_takes_clear_pages_where_there_are_any),
		cmocka_unit_test(test_what_is_too_much_is_refused),
		cmocka_unit_test(test_a_region_without_heaps_has_none),
		cmocka_unit_test(test_blocks_outlive_their_endpoint),
		cmocka_unit_test(test_blocks_outlive_their_region),
		cmocka_unit_test(test_the_slot_of_a_dead_holder_is_free),
		cmocka_unit_test(test_a_forked_child_disturbs_nothing),
		cmocka_unit_test(test_a_forked_child_can_have_a_heap_of_its_own),
		cmocka_unit_test(test_an_evicted_endpoint_allocates_no_more),
		cmocka_unit_test(test_threads_get_blocks_of_their_own),
	};
	return cmocka_run_group_tests(tests, open_region, close_region);
}
