/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Single copies between two processes: contents checked under load, an end that is killed in the middle, and
 * an end that forks there.
 */
#include "side.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define SECTION_BYTES (6U * 1024U * 1024U)
#define HEAP_BYTES (4U * 1024U * 1024U)
#define LARGEST 600000U
#define MESSAGES 120U
#define SEED 20261U

/* ---- contents ---- */

struct plan {
	size_t length;
	size_t room;
	bool from_heap;
	bool to_heap;
	bool late; /* the receive is posted after the message arrived */
};

static struct plan plan_of(uint32_t number, uint32_t sender)
{
	uint64_t random = (number + 1) * UINT64_C(0x9e3779b97f4a7c15) + sender + SEED;

	(void)next_random(&random);
	size_t length = SINGLE_COPY_BYTES + 1 + random_below(&random, LARGEST - SINGLE_COPY_BYTES);
	return (struct plan){
		.length = length,
		.room = random_below(&random, 8) == 0 ? length - random_below(&random, 50000) : LARGEST,
		.from_heap = random_below(&random, 2) != 0,
		.to_heap = random_below(&random, 2) != 0,
		.late = random_below(&random, 4) == 0,
	};
}

/* Both send and receive at once, so that each is busy with other work at times. */
static void talk(struct side *side, uint32_t slot)
{
	unsigned char *private_source = malloc(LARGEST);
	unsigned char *private_target = malloc(LARGEST);

	CHECK(private_source != NULL && private_target != NULL);
	for (uint32_t number = 0; number < MESSAGES; number++) {
		struct plan out = plan_of(number, slot);
		struct plan in = plan_of(number, !slot);
		unsigned char *source = out.from_heap ? side->heap : private_source;
		unsigned char *target = in.to_heap ? side->heap + LARGEST + 4096 : private_target;
		size_t fits = in.length < in.room ? in.length : in.room;
		memset(target, 0xee, LARGEST);
		if (!in.late)
			post(side, target, in.room, number);
		fill(source, out.length, (uint64_t)slot << 32 | number);
		CHECK(start_send(side, source, out.length, number) == 0);
		for (int i = 0; in.late && i < 200; i++)
			side_progress(side);
		if (in.late)
			post(side, target, in.room, number);
		struct completion entry = await(side, &side->node.receives);
		CHECK(entry.error == (fits < in.length ? FI_ETRUNC : 0));
		CHECK(fits < in.length || has(target, fits, (uint64_t)!slot << 32 | number));
		for (size_t i = fits; i < LARGEST; i++)
			CHECK(target[i] == 0xee);
		memset(target, 0x22, fits);
		CHECK(await(side, &side->node.sends).error == 0);
		memset(source, 0x11, out.length);
		/* Nothing writes into the rest any more. */
		for (size_t i = 0; i < fits; i++)
			CHECK(target[i] == 0x22);
	}
	CHECK(side->node.messenger->single->free_count == REGION_TRANSFERS);
	CHECK(side->node.messenger->copying == 0);
	node_close(&side->node);
	free(private_source);
	free(private_target);
}

static void test_answers_of_two_processes(void **state)
{
	struct region *region = world_region_with_heaps(2, SECTION_BYTES, HEAP_BYTES);
	struct side side = {0};
	pid_t child = fork();

	(void)state;
	assert_true(child >= 0);
	if (child == 0) {
		join(&side, region, 1);
		talk(&side, 1);
		_exit(0);
	}
	join(&side, region, 0);
	talk(&side, 0);
	assert_ended_well(child);
	region_detach(region);
}

/* ---- an end that is killed ---- */

#define LENGTH 1000001U

/* Send or receive one message after the other, until killed. */
static void go_on(struct side *side, bool sends, unsigned char *bytes)
{
	for (uint32_t number = 0;; number++) {
		if (sends) {
			fill(bytes, LENGTH, number);
			(void)start_send(side, bytes, LENGTH, number);
			(void)await(side, &side->node.sends);
		} else {
			post(side, bytes, LENGTH, number);
			(void)await(side, &side->node.receives);
		}
	}
}

/* Kill the peer after some of our polls. Returns the resulting error, 0 if there was none. */
static int live_on(struct side *side, bool sends, unsigned char *bytes, pid_t child, uint32_t polls)
{
	struct completion_queue *queue = sends ? &side->node.sends : &side->node.receives;
	int error = 0;

	for (uint32_t number = 0; error == 0; number++) {
		if (sends) {
			fill(bytes, LENGTH, number);
			error = start_send(side, bytes, LENGTH, number);
			if (error != 0)
				break;
		} else {
			post(side, bytes, LENGTH, number);
		}
		while (completion_is_empty(queue)) {
			/* The first message shows that the peer works. */
			if (number > 0 && polls-- == 0)
				(void)kill(child, SIGKILL);
			side_progress(side);
		}
		error = await(side, queue).error;
		if (error == 0 && !sends)
			CHECK(has(bytes, LENGTH, number));
	}
	return error;
}

static void test_an_end_that_is_killed(void **state)
{
	uint64_t random = SEED;

	(void)state;
	for (uint32_t round = 0; round < 16; round++) {
		bool sends = round % 2 == 0;
		bool heap = round % 4 >= 2;
		struct region *region = world_region_with_heaps(2, SECTION_BYTES, HEAP_BYTES);
		struct side side = {0};
		pid_t child = fork();
		assert_true(child >= 0);
		unsigned char *private = malloc(LENGTH);
		assert_non_null(private);
		if (child == 0) {
			join(&side, region, 1);
			go_on(&side, !sends, heap ? side.heap : private);
		}
		join(&side, region, 0);
		unsigned char *bytes = heap ? side.heap : private;
		int error = live_on(&side, sends, bytes, child, random_below(&random, 60));
		assert_int_equal(error, ECONNRESET);
		assert_int_equal(waitpid(child, NULL, 0), child);
		/* The buffer is the application's again, and stays as the application left it. */
		memset(bytes, 0x33, LENGTH);
		for (int i = 0; i < 300; i++)
			side_progress(&side);
		for (size_t i = 0; i < LENGTH; i++)
			if (bytes[i] != 0x33)
				fail_msg("round %u: byte %zu was written after the end", round, i);
		assert_int_equal(side.node.messenger->single->free_count, REGION_TRANSFERS);
		/* The successor in its slot has its heap at once. */
		struct node successor;
		node_open(&successor, region);
		assert_int_equal(node_slot(&successor), 1);
		void *block = heap_allocate(successor.messenger->transport->heap, 100000, 1, false);
		assert_non_null(block);
		assert_true(heap_release(block));
		node_close(&successor);
		node_close(&side.node);
		region_detach(region);
		free(private);
	}
}

/* ---- a fork in the middle ---- */

/*
 * The child has a copy of its parent's receive or send. The operation ends there, and disturbs no other
 * process.
 */
static void be_forked(struct side *side, struct region *region, bool sends, unsigned char *bytes)
{
	struct completion_queue *queue = sends ? &side->node.sends : &side->node.receives;

	region_after_fork(region);
	transport_after_fork(side->node.messenger->transport);
	/* The acknowledgement may be in the parent's ring when the child reads the ring for the last time. */
	int error = await(side, queue).error;
	CHECK(error == ECONNABORTED || (sends && error == 0));
	memset(bytes, 0x44, LENGTH);
	node_close(&side->node);
	_exit(0);
}

/* Begin a message of this side, and continue until a part is copied. Fails if the message is over. */
static void begin(struct side *side, const struct completion_queue *queue)
{
	while (match_is_empty(&side->node.messenger->incoming) &&
	       match_is_empty(&side->node.messenger->pumping) && completion_is_empty(queue))
		side_progress(side);
}

static void test_a_fork_in_the_middle(void **state)
{
	/* The parent has forked. Until then the other process does nothing, so that the copy does not end. */
	atomic_bool *forked_now =
		mmap(NULL, REGION_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_ptr_not_equal(forked_now, MAP_FAILED);
	for (uint32_t round = 0; round < 8; round++) {
		bool sends = round % 2 == 0;
		bool heap = round % 4 >= 2;
		struct region *region = world_region_with_heaps(2, SECTION_BYTES, HEAP_BYTES);
		struct side side = {0};
		atomic_store(forked_now, false);
		pid_t child = fork();
		assert_true(child >= 0);
		unsigned char *private = malloc(LENGTH);
		assert_non_null(private);
		if (child == 0) {
			join(&side, region, 1);
			unsigned char *its = heap ? side.heap : private;
			fill(its, LENGTH, round);
			if (!sends)
				CHECK(start_send(&side, its, LENGTH, 1) == 0);
			else
				post(&side, its, LENGTH, 1);
			if (sends)
				begin(&side, &side.node.receives);
			while (!atomic_load(forked_now))
				(void)sched_yield();
			CHECK(await(&side, sends ? &side.node.receives : &side.node.sends).error == 0);
			CHECK(!sends || has(its, LENGTH, round + 100));
			node_close(&side.node);
			_exit(0);
		}
		join(&side, region, 0);
		unsigned char *bytes = heap ? side.heap : private;
		struct completion_queue *queue = sends ? &side.node.sends : &side.node.receives;
		if (sends) {
			fill(bytes, LENGTH, round + 100);
			assert_int_equal(start_send(&side, bytes, LENGTH, 1), 0);
		} else {
			post(&side, bytes, LENGTH, 1);
		}
		begin(&side, queue);
		assert_true(completion_is_empty(queue));
		pid_t forked = fork();
		assert_true(forked >= 0);
		if (forked == 0)
			be_forked(&side, region, sends, bytes);
		atomic_store(forked_now, true);
		struct completion entry = await(&side, queue);
		assert_int_equal(entry.error, 0);
		assert_true(has(bytes, LENGTH, sends ? round + 100 : round));
		assert_ended_well(forked);
		assert_true(has(bytes, LENGTH, sends ? round + 100 : round));
		node_close(&side.node);
		assert_ended_well(child);
		region_detach(region);
		free(private);
	}
	(void)munmap(forked_now, REGION_PAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answers_of_two_processes),
		cmocka_unit_test(test_an_end_that_is_killed),
		cmocka_unit_test(test_a_fork_in_the_middle),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
