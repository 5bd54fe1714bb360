/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Endpoints in several regions: a peer that sends before its address is known is the same peer afterwards,
 * whatever happened to the region meanwhile.
 */
#include "regions.h"

#include "transport/region_transport.h"

/* The regions of A and B, and the region through which they reach each other. */
static const struct {
	const char *of_a;
	const char *of_b;
	char shared;
} lists[] = {{"12", "21", '1'}, {"1", "21", '1'}, {"12", "2", '2'}, {"12", "12", '1'}, {"312", "2", '2'}};
#define LISTS (sizeof(lists) / sizeof(lists[0]))

/* A receives a message from any source. Returns the sender's number and epoch. */
static uint64_t hear(uint64_t expected)
{
	uint64_t word = 0;

	fake_settle(&world);
	assert_int_equal(fake_receive(&world.nodes[A], MATCH_ANY_SOURCE, &word, 8, 5), 0);
	struct completion got = fake_next(&world.nodes[A].node.receives);
	assert_int_equal(got.error, 0);
	assert_int_equal(word, expected);
	return got.source;
}

/* B sends to A, which does not know B's address. */
static uint64_t call(struct msg_peer *to)
{
	const uint64_t word = 99;

	assert_int_equal(fake_send(&world.nodes[B], to, &word, 8, 5), 0);
	return hear(word);
}

/*
 * A's application inserts the address now, and A knows B under this number. From here on they exchange
 * messages.
 */
static void assert_known_as(uint64_t source, bool was_broken)
{
	const struct peer *stranger = transport_of(A)->peers[(uint32_t)source];

	assert_ptr_equal(stranger, &meet(A, B)->peer);
	assert_int_equal(msg_peer_source(meet(A, B)), source);
	settle_switches();
	/* Without an operation in progress, the next call reports the failure. */
	if (was_broken) {
		assert_true(fake_send(&world.nodes[B], meet(B, A), out, 8, 9) < 0);
		assert_true(fake_send(&world.nodes[A], meet(A, B), out, 8, 9) < 0);
	}
	assert_int_equal(call(meet(B, A)), source);
	talk_of_all(A, B);
}

static void test_a_stranger_is_told_of_later(void **state)
{
	(void)state;
	for (size_t i = 0; i < LISTS; i++) {
		open_endpoints(lists[i].of_a, lists[i].of_b, "3");
		uint64_t source = call(meet(B, A));
		assert_int_equal(region_between(A, B), lists[i].shared);
		assert_known_as(source, false);
		close_endpoints();
	}
}

/*
 * When its address comes, the region in which it was met cannot be used any more. A may or may not know that
 * yet.
 */
static void test_a_stranger_of_a_region_that_is_cut(void **state)
{
	(void)state;
	for (size_t i = 0; i < LISTS; i++)
		for (int noticed = 0; noticed < 2; noticed++) {
			open_endpoints(lists[i].of_a, lists[i].of_b, "3");
			uint64_t source = call(meet(B, A));
			cut_file(lists[i].shared);
			if (noticed)
				settle_switches();
			assert_known_as(source, true);
			close_endpoints();
		}
}

/* The same for the words that identify the member. */
static void test_a_stranger_whose_words_were_written_over(void **state)
{
	(void)state;
	for (size_t i = 0; i < LISTS; i++)
		for (int noticed = 0; noticed < 2; noticed++) {
			open_endpoints(lists[i].of_a, lists[i].of_b, "3");
			uint64_t source = call(meet(B, A));
			const struct member *lost = member_in(B, lists[i].shared);
			shared_store_u64(&region_slot(lost->region, lost->slot)->claim,
					 (uint64_t)(lost->epoch + 1) << 32 | SLOT_CLAIMED);
			if (noticed)
				settle_switches();
			assert_known_as(source, true);
			close_endpoints();
		}
}

/* It is met after the words that name its first region are gone. */
static void test_a_stranger_that_comes_after_the_cut(void **state)
{
	(void)state;
	for (size_t i = 0; i < LISTS; i++) {
		open_endpoints(lists[i].of_a, lists[i].of_b, "3");
		const struct peer *called = &meet(B, A)->peer;
		const uint32_t slot = member_in(B, lists[i].shared)->slot;
		cut_file(lists[i].shared);
		settle_switches();
		assert_int_equal(called->failover, FAILOVER_DONE);
		uint32_t source = 0;
		for (uint32_t k = 0; k < transport_of(A)->attachment_count; k++)
			if (transport_of(A)->attachments[k].region->id[1] ==
			    (uint64_t)(lists[i].shared - '0'))
				source = transport_of(A)->attachments[k].base + slot;
		assert_non_null(transport_of(A)->peers[source]);
		/* B believes that it had sent to A; A had not received anything. */
		assert_true(fake_send(&world.nodes[B], meet(B, A), out, 8, 9) < 0);
		assert_known_as(msg_peer_source((void *)transport_of(A)->peers[source]), false);
		close_endpoints();
	}
}

/*
 * B found no region that both are in, and sent over the network: A answers there, although A sees a shared
 * region.
 */
static void test_a_stranger_beyond(void **state)
{
	(void)state;
	for (size_t i = 0; i < LISTS; i++) {
		open_endpoints(lists[i].of_a, lists[i].of_b, "3");
		network_listen(transport_of(A));
		uint32_t index = directory_add(&world.nodes[B].directory, address_of(A).nonce,
					       network_name(transport_of(A)->network));
		uint64_t source =
			call((void *)network_meet(transport_of(B), transport_of(B)->members + index));
		assert_true((uint32_t)source >= transport_of(A)->members);
		assert_int_equal(region_between(A, B), '0');
		assert_known_as(source, false);
		close_endpoints();
	}
}

/*
 * A member with a slot of its own that claims to be B is not taken for B once the region's file is truncated.
 */
static void test_a_liar_is_not_told_of(void **state)
{
	(void)state;
	open_endpoints("12", "12", "2");
	forge(C, B, '2');
	uint64_t word = 7;
	assert_int_equal(fake_send(&world.nodes[C], meet(C, A), &word, 8, 5), 0);
	uint64_t liar = hear(word);
	cut_file('2');
	settle_switches();
	assert_ptr_not_equal(transport_of(A)->peers[(uint32_t)liar], &meet(A, B)->peer);
	assert_int_equal(region_between(A, B), '1');
	talk_of_all(A, B);
	close_endpoints();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_stranger_is_told_of_later),
		cmocka_unit_test(test_a_stranger_of_a_region_that_is_cut),
		cmocka_unit_test(test_a_stranger_whose_words_were_written_over),
		cmocka_unit_test(test_a_stranger_that_comes_after_the_cut),
		cmocka_unit_test(test_a_stranger_beyond),
		cmocka_unit_test(test_a_liar_is_not_told_of),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
