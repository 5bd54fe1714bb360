/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_liveness.c - many members of a region detect dead members, and rarely ask the kernel. The tests count
 * questions to the kernel, and do not depend on time.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "world.h"

#define MEMBERS 200U
#define LOOKING 100U /* members 0 to 99 check their peers, the rest compute */
#define SECTION_BYTES (512U * 1024U)
/*
 * The bound on steps of the kernel's walk over its locks, by all members in 50 ms: see
 * transport/region_liveness.c.
 */
#define STEPS_MAX 262144U
/* The number of checks that cover all peers. */
#define ROUND (MEMBERS / 64U + 1U)

static struct region *region;
static struct node nodes[MEMBERS];
static uint32_t questions;

/* The C library's function, with a count. */
int fcntl(int fd, int command, ...)
{
	va_list arguments;

	va_start(arguments, command);
	void *argument = va_arg(arguments, void *);
	va_end(arguments);
	questions += command == F_OFD_GETLK;
	return (int)syscall(SYS_fcntl, fd, command, argument);
}

static struct transport *transport_of(uint32_t index)
{
	return nodes[index].messenger->transport;
}

static const struct peer *peer_of(uint32_t index, uint32_t other)
{
	return transport_of(index)->peers[other];
}

/* Every member's slot is its index. */
static void open_all(void)
{
	region = world_region(MEMBERS, SECTION_BYTES);
	for (uint32_t i = 0; i < MEMBERS; i++) {
		node_open(&nodes[i], region);
		assert_int_equal(node_slot(&nodes[i]), i);
	}
	for (uint32_t i = 0; i < LOOKING; i++)
		for (uint32_t other = 0; other < MEMBERS; other++)
			(void)world_peer(&nodes[i], &nodes[other]);
}

static void close_all(void)
{
	for (uint32_t i = 0; i < MEMBERS; i++)
		if (nodes[i].messenger != NULL)
			node_die(&nodes[i]);
	region_detach(region);
}

static void check_all(uint32_t checks)
{
	for (uint32_t check = 0; check < checks; check++)
		for (uint32_t i = 0; i < LOOKING; i++)
			if (nodes[i].messenger != NULL)
				transport_check_peers(transport_of(i));
}

static uint32_t count_who_knows(uint32_t dead)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < LOOKING; i++)
		count += nodes[i].messenger != NULL && peer_of(i, dead)->state == PEER_FAILED;
	return count;
}

static void test_nobody_asks_for_those_who_look(void **state)
{
	(void)state;
	open_all();
	/* In the first checks it is still unknown which members are quiet. */
	check_all(2 * ROUND);
	for (uint32_t i = 0; i < LOOKING; i++)
		for (uint32_t other = 0; other < LOOKING; other++)
			assert_false(peer_of(i, other)->quiet);
	for (uint32_t i = 0; i < LOOKING; i++)
		for (uint32_t other = LOOKING; other < MEMBERS; other++)
			assert_true(peer_of(i, other)->quiet);
	close_all();
}

static void test_questions_are_few_however_many_ask(void **state)
{
	(void)state;
	open_all();
	check_all(2 * ROUND);
	for (uint32_t check = 0; check < 3 * ROUND; check++) {
		questions = 0;
		check_all(1);
		/* Each check asks some questions. Otherwise a death would not be found. */
		assert_in_range(questions, LOOKING, STEPS_MAX / MEMBERS);
	}
	for (uint32_t other = 0; other < MEMBERS; other++)
		assert_int_equal(count_who_knows(other), 0);
	close_all();
}

static void test_one_that_looks_alone_may_ask_for_all(void **state)
{
	(void)state;
	open_all();
	questions = 0;
	for (uint32_t check = 0; check < 3 * ROUND; check++)
		transport_check_peers(transport_of(0));
	assert_true(questions >= MEMBERS - 1);
	assert_in_range(questions, MEMBERS - 1, 3 * ROUND * 128);
	close_all();
}

static void test_one_that_looked_is_missed_at_once(void **state)
{
	(void)state;
	open_all();
	check_all(2 * ROUND);
	node_die(&nodes[70]);
	/* Its heartbeat may have changed since the last check, so only the second check finds it still. */
	check_all(2 * ROUND);
	assert_int_equal(count_who_knows(70), LOOKING - 1);
	close_all();
}

/*
 * All quiet members are asked about in turn, so all of these checks pass before every member has asked about
 * the last.
 */
static void test_one_that_computed_is_missed_soon(void **state)
{
	(void)state;
	open_all();
	check_all(2 * ROUND);
	for (uint32_t victim = LOOKING; victim < MEMBERS; victim += 33)
		node_die(&nodes[victim]);
	check_all(6 * ROUND);
	for (uint32_t victim = LOOKING; victim < MEMBERS; victim += 33)
		assert_int_equal(count_who_knows(victim), LOOKING);
	close_all();
}

static void test_who_is_said_to_be_dead_is_asked_for_first(void **state)
{
	(void)state;
	open_all();
	check_all(2 * ROUND);
	node_die(&nodes[199]);
	/* Its turn is just over, so the next turn is far away. */
	for (uint32_t i = 0; i < LOOKING; i++)
		transport_of(i)->next_asked = LOOKING;
	member_publish_death(transport_of(3)->attachments[0].member, 199, peer_of(3, 199)->tenure);
	check_all(ROUND);
	assert_int_equal(count_who_knows(199), LOOKING);
	close_all();
}

/* A death notice causes a question, and is not believed by itself. */
static void test_a_death_notice_that_lies(void **state)
{
	(void)state;
	open_all();
	check_all(2 * ROUND);
	struct section_header *header = section_header(region, 5);
	const uint64_t lies[] = {
		(uint64_t)peer_of(0, 150)->tenure << 32 | 150, /* it lives */
		UINT64_C(1) << 32 | 0xffffffff,                /* no slot */
		UINT64_C(1) << 32 | MEMBERS,
		UINT64_C(77) << 32 | 150, /* not a member that we know */
		(uint64_t)transport_of(0)->attachments[0].member->epoch << 32 | 0,
		UINT64_MAX,
	};
	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		shared_store_u64(&header->death_notice, lies[i]);
		for (uint32_t check = 0; check < ROUND; check++) {
			questions = 0;
			check_all(1);
			assert_in_range(questions, LOOKING, STEPS_MAX / MEMBERS);
		}
	}
	for (uint32_t other = 0; other < MEMBERS; other++)
		assert_int_equal(count_who_knows(other), 0);
	/* A dead member is found all the same. */
	node_die(&nodes[160]);
	check_all(6 * ROUND);
	assert_int_equal(count_who_knows(160), LOOKING);
	close_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nobody_asks_for_those_who_look),
		cmocka_unit_test(test_questions_are_few_however_many_ask),
		cmocka_unit_test(test_one_that_looks_alone_may_ask_for_all),
		cmocka_unit_test(test_one_that_looked_is_missed_at_once),
		cmocka_unit_test(test_one_that_computed_is_missed_soon),
		cmocka_unit_test(test_who_is_said_to_be_dead_is_asked_for_first),
		cmocka_unit_test(test_a_death_notice_that_lies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
