/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints in several regions: which shared region a pair uses, and everything that happens there. */
#include "regions.h"

#include <stdio.h>
#include <string.h>

#include "transport/region_transport.h"

static void test_each_pair_by_what_it_shares(void **state)
{
	(void)state;
	open_endpoints("1", "12", "2");
	assert_int_equal(region_between(A, B), '1');
	assert_int_equal(region_between(B, A), '1');
	assert_int_equal(region_between(B, C), '2');
	assert_int_equal(region_between(C, B), '2');
	assert_int_equal(region_between(A, C), '0');
	assert_int_equal(region_between(C, A), '0');
	for (int one = A; one <= C; one++)
		for (int other = A; other <= C; other++)
			talk_of_all(one, other);
	/* The counts that each region publishes for people. */
	for (int i = A; i <= C; i++)
		transport_publish_counts(transport_of(i));
	const struct region *first = domains[A].regions[0];
	const struct region *second = domains[C].regions[0];
	assert_true(
		shared_load_u64(&section_connection(first, member_in(A, '1')->slot, member_in(B, '1')->slot)
					 ->messages) > 0);
	assert_true(
		shared_load_u64(&section_connection(second, member_in(C, '2')->slot, member_in(B, '2')->slot)
					 ->messages) > 0);
	assert_true(shared_load_u64(&section_network(first, member_in(A, '1')->slot, 0)->messages) > 0);
	close_endpoints();
}

/* A receive from any source gets the messages of each sender in order, whatever their transport. */
static void test_wildcards_over_all_ways(void **state)
{
	uint64_t next[FAKE_ENDS] = {0};

	(void)state;
	open_endpoints("12", "13", "2");
	assert_int_equal(region_between(A, B), '1');
	assert_int_equal(region_between(A, C), '2');
	assert_int_equal(region_between(B, C), '0');
	for (uint64_t i = 0; i < 40; i++)
		for (int from = A; from <= C; from += 2) {
			uint64_t word = i;
			assert_int_equal(fake_send(&world.nodes[from], meet(from, B), &word, 8, 5), 0);
			fake_settle(&world);
		}
	for (int i = 0; i < 80; i++) {
		uint64_t word = 0;
		assert_int_equal(fake_receive(&world.nodes[B], MATCH_ANY_SOURCE, &word, 8, 5), 0);
		struct completion got = fake_next(&world.nodes[B].node.receives);
		int from = (uint32_t)got.source == meet(B, A)->peer.source ? A : C;
		assert_int_equal((uint32_t)got.source, meet(B, from)->peer.source);
		assert_int_equal(word, next[from]++);
	}
	assert_int_equal(next[A], 40);
	assert_int_equal(next[C], 40);
	close_endpoints();
}

static bool has(const char *list, char region)
{
	return strchr(list, region) != NULL;
}

/* The choice that both must make from their lists only: see resolve.c. */
static char expected_between(const char *one, const char *other)
{
	char best = '0';
	int best_homes = -1;

	for (const char *region = "123"; *region != '\0'; region++) {
		int homes = (*one == *region) + (*other == *region);
		if (has(one, *region) && has(other, *region) && homes > best_homes) {
			best = *region;
			best_homes = homes;
		}
	}
	return best;
}

static void test_both_ends_choose_the_same(void **state)
{
	static const char *const lists[] = {"1",  "2",   "3",   "12",  "21",  "13",  "31", "23",
					    "32", "123", "132", "213", "231", "312", "321"};
	const size_t count = sizeof(lists) / sizeof(lists[0]);

	(void)state;
	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; k < count; k++) {
			char expected = expected_between(lists[i], lists[k]);
			open_endpoints(lists[i], lists[k], "3");
			assert_int_equal(region_between(A, B), expected);
			assert_int_equal(region_between(B, A), expected);
			/* To itself, each uses the first region of its list. */
			assert_int_equal(region_between(A, A), lists[i][0]);
			close_endpoints();
		}
}

static void test_a_region_that_is_full(void **state)
{
	struct member *members[MEMBERS];
	struct region *region = NULL;
	struct region_error error;
	char name[96];

	(void)state;
	open_endpoints("1", "1", "3");
	(void)snprintf(name, sizeof(name), "file:%s", files[1]);
	assert_int_equal(region_attach(name, &region, &error), 0);
	for (uint32_t i = 0; i < MEMBERS; i++)
		assert_int_equal(member_join(region, i, WORLD_TIMEOUT, &members[i], &error), 0);
	assert_int_equal(messenger_join(world.nodes[C].node.messenger, region, 0, &error), -ENOSPC);
	assert_non_null(strstr(error.text, "is full"));
	for (uint32_t i = 0; i < MEMBERS; i++)
		member_leave(members[i]);
	/* Everything is as before. */
	assert_int_equal(transport_of(C)->attachment_count, 1);
	assert_int_equal(transport_of(C)->members, MEMBERS);
	talk_of_all(C, C);
	region_detach(region);
	close_endpoints();
}

static void test_no_more_regions_than_there_is_room_for(void **state)
{
	struct region_error error;

	(void)state;
	open_endpoints("123", "1", "3");
	/* An endpoint that does not check may join a region twice: it is another member there. */
	assert_int_equal(messenger_join(world.nodes[A].node.messenger, domains[A].regions[1], 0, &error), 0);
	assert_int_equal(messenger_join(world.nodes[A].node.messenger, domains[A].regions[2], 0, &error),
			 -E2BIG);
	assert_non_null(strstr(error.text, "4 regions and no more"));
	close_endpoints();
}

/* ---- the heap ---- */

/* Other regions do not map the heap. Their members still get messages from it, copied twice. */
static void test_the_heap_is_in_the_first_region(void **state)
{
	(void)state;
	heap_bytes = (uint64_t)1 << 20;
	open_endpoints("12", "1", "2");
	for (int i = A; i <= C; i++)
		assert_int_equal(single_copy_open(world.nodes[i].node.messenger, SINGLE_COPY_ON), 0);
	struct heap *heap = transport_of(A)->heap;
	assert_non_null(heap);
	unsigned char *bytes = heap_allocate(heap, LONG, 64, false);
	assert_non_null(bytes);
	assert_true((size_t)(bytes - domains[A].regions[0]->base) < domains[A].regions[0]->bytes);
	assert_true(meet(A, B)->peer.mapped);
	assert_false(meet(A, C)->peer.mapped);
	fill_bytes(bytes, LONG, 5);
	for (int to = B; to <= C; to++) {
		memset(in, 0, LONG);
		assert_int_equal(fake_receive(&world.nodes[to], meet(to, A)->peer.source, in, LONG, 6), 0);
		assert_int_equal(fake_send(&world.nodes[A], meet(A, to), bytes, LONG, 6), 0);
		fake_settle(&world);
		assert_int_equal(fake_next(&world.nodes[A].node.sends).error, 0);
		assert_int_equal(fake_next(&world.nodes[to].node.receives).error, 0);
		assert_bytes(in, LONG, 5);
		talk_of_all(to, A);
	}
	/* The heap is in the first region: it does not end with the second. */
	cut_file('2');
	settle_switches();
	assert_true(transport_of(A)->attachments[1].cut);
	assert_true(heap_release(bytes));
	bytes = heap_allocate(heap, LONG, 64, false);
	assert_non_null(bytes);
	assert_true(heap_release(bytes));
	close_endpoints();
	heap_bytes = 0;
}

/* ---- polling and sleeping ---- */

/* Peers are found only by polls, one in 64 of which reads the doorbells of one region. */
static void test_polls_hear_each_region(void **state)
{
	uint64_t words[FAKE_ENDS] = {0, 1, 2};
	uint64_t got[FAKE_ENDS] = {0};

	(void)state;
	open_endpoints("12", "1", "2");
	for (int from = B; from <= C; from++) {
		assert_int_equal(fake_receive(&world.nodes[A], meet(A, from)->peer.source, &got[from], 8, 7),
				 0);
		assert_int_equal(fake_send(&world.nodes[from], meet(from, A), &words[from], 8, 7), 0);
	}
	for (int poll = 0; poll < 3 * 64; poll++)
		(void)messenger_progress(world.nodes[A].node.messenger);
	assert_int_equal(got[B], 1);
	assert_int_equal(got[C], 2);
	close_endpoints();
}

static void test_a_sleep_ends_by_each_region(void **state)
{
	struct sleep_watch watch;

	(void)state;
	open_endpoints("12", "1", "2");
	talk(B, A, 8, 1);
	talk(C, A, 8, 2);
	transport_sleep_begin(transport_of(A));
	(void)transport_progress_full(transport_of(A));
	for (int from = B; from <= C; from++) {
		sleep_watch_open(&watch);
		(void)transport_sleep_watch(transport_of(A), &watch);
		if (sleep_waits_on_many())
			assert_int_equal(watch.count, 2 * (1 + MEMBERS));
		assert_int_equal(sleep_until(&watch, monotonic_now() + 1000000), SLEEP_ELAPSED);
		uint64_t word = 1;
		assert_int_equal(fake_send(&world.nodes[from], meet(from, A), &word, 8, 7), 0);
		if (sleep_waits_on_many())
			assert_int_equal(sleep_until(&watch, monotonic_now() + UINT64_C(60000000000)),
					 SLEEP_RUNG);
		assert_int_equal(transport_progress_full(transport_of(A)), 0);
	}
	transport_sleep_end(transport_of(A));
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(shared_load_u32(&section_header(transport_of(A)->attachments[i].region,
								 transport_of(A)->attachments[i].member->slot)
							  ->sleeping),
				 0);
	fake_settle(&world);
	talk_of_all(A, B);
	talk_of_all(A, C);
	close_endpoints();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_pair_by_what_it_shares),
		cmocka_unit_test(test_wildcards_over_all_ways),
		cmocka_unit_test(test_both_ends_choose_the_same),
		cmocka_unit_test(test_a_region_that_is_full),
		cmocka_unit_test(test_no_more_regions_than_there_is_room_for),
		cmocka_unit_test(test_the_heap_is_in_the_first_region),
		cmocka_unit_test(test_polls_hear_each_region),
		cmocka_unit_test(test_a_sleep_ends_by_each_region),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
