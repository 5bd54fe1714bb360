/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The manager changes its mind while a pair detaches from a region, or just afterwards. Each case is a trace
 * that tests/model or tests/fuzz/fuzz_walk.c found.
 */
#include "regions.h"

#include "transport/network_transport.h"
#include "transport/region_transport.h"
#include "transport/switch.h"

static void request_route(int index, enum requested_route wanted)
{
	const struct member *member = transport_of(index)->attachments[0].member;

	shared_store_u64(&region_slot(member->region, member->slot)->requested_route,
			 (uint64_t)member->epoch << 32 | wanted);
}

static void settle(void)
{
	for (int round = 0; round < 8; round++)
		settle_switches();
}

static struct network_peer *beyond(int at, int whom)
{
	return meet(at, whom)->peer.beyond;
}

static void assert_through_region(int one, int other)
{
	assert_routes(one, other, false);
	assert_non_null(meet(one, other)->peer.attachment);
	assert_non_null(meet(other, one)->peer.attachment);
}

/* Both know the other's network name, and both have proved that the network reaches the other. */
static void prove(void)
{
	assert_true(network_attach(transport_of(A), &meet(A, B)->peer));
	assert_true(network_attach(transport_of(B), &meet(B, A)->peer));
	beyond(A, B)->proved = true;
	beyond(B, A)->proved = true;
}

/* A has sent DETACH to B, to which it never sent a message. B sends to A before DETACH arrives. */
static void say_detach(void)
{
	open_endpoints("1", "1", "");
	(void)meet(A, B);
	(void)meet(B, A);
	request_route(A, ROUTE_LEAVE);
	prove();
	transport_begin_switches(transport_of(A));
	assert_int_equal(beyond(A, B)->detach_said, DETACH_FIRST);
	assert_true(beyond(A, B)->tx_paused);
	static const unsigned char word[8] = {1};
	assert_int_equal(fake_send(&world.nodes[B], meet(B, A), word, sizeof(word), 7), 0);
	assert_null(meet(B, A)->peer.network);
	request_route(A, ROUTE_RETURN);
}

static void receive_word(void)
{
	assert_int_equal(fake_receive(&world.nodes[A], meet(A, B)->peer.source, in, 8, 7), 0);
	fake_settle(&world);
	assert_int_equal(fake_next(&world.nodes[A].node.receives).error, 0);
	assert_int_equal(in[0], 1);
}

static void test_a_detach_that_began_ends(void **state)
{
	(void)state;
	say_detach();
	settle();
	receive_word();
	talk_of_all(A, B);
	assert_through_region(A, B);
	close_endpoints();
}

/* A's sends wait until B expects them, and the pair cannot use the region before B answers. */
static void test_a_detach_that_began_fails_over(void **state)
{
	(void)state;
	say_detach();
	transport_break(transport_of(A), &meet(A, B)->peer, -EPROTO, "the test says so");
	settle();
	assert_int_equal(meet(A, B)->peer.failover, FAILOVER_DONE);
	static const unsigned char word[8] = {2};
	for (int tries = 0; tries < 2; tries++) /* the first send may report the failure */
		if (fake_send(&world.nodes[A], meet(A, B), word, sizeof(word), 8) == 0)
			break;
	settle();
	assert_false(network_tx_paused(&meet(A, B)->peer));
	close_endpoints();
}

/* B sees the manager's request to A before A does, and A sees only that it was withdrawn. */
static void test_who_detached_is_called_back_by_who_stays(void **state)
{
	(void)state;
	open_endpoints("1", "1", "");
	(void)meet(A, B);
	(void)meet(B, A);
	request_route(A, ROUTE_LEAVE);
	prove();
	transport_begin_switches(transport_of(B));
	request_route(A, ROUTE_RETURN);
	settle();
	talk_of_all(A, B);
	assert_through_region(A, B);
	close_endpoints();
}

/* B is to detach from A, and B's core has no room for the message. Then the manager withdraws the request. */
static void test_who_could_not_say_that_it_detaches_stays(void **state)
{
	(void)state;
	open_endpoints("1", "1", "");
	(void)meet(A, B);
	(void)meet(B, A);
	request_route(A, ROUTE_LEAVE);
	prove();
	world.ends[B].refusals = 1;
	transport_begin_switches(transport_of(B));
	assert_int_equal(world.ends[B].refusals, 0);
	request_route(A, ROUTE_RETURN);
	settle();
	talk_of_all(A, B);
	assert_through_region(A, B);
	close_endpoints();
}

/* A has detached from B, and cannot leave the region. */
static void part(void)
{
	open_endpoints("1", "1", "");
	talk_of_all(A, B);
	transport_of(A)->attachments[0].next_search = UINT64_MAX;
	transport_of(A)->attachments[0].region->lost = true;
	request_route(A, ROUTE_LEAVE);
	settle();
	assert_null(meet(A, B)->peer.attachment);
	assert_false(transport_of(A)->attachments[0].region->left);
}

/* A asks B to meet again, and leaves before the answer arrives. */
static void test_who_calls_back_and_leaves_lives_on(void **state)
{
	(void)state;
	part();
	request_route(A, ROUTE_RETURN);
	transport_begin_switches(transport_of(A));
	transport_check_peers(transport_of(A));
	(void)network_progress_full(transport_of(B));
	assert_non_null(meet(B, A)->peer.attachment);
	request_route(A, ROUTE_LEAVE);
	transport_of(A)->attachments[0].region->lost = false;
	transport_begin_switches(transport_of(A));
	assert_true(transport_of(A)->attachments[0].region->left);
	/* For B, A has been gone for long. */
	meet(B, A)->peer.gone = 1;
	transport_check_peers(transport_of(B));
	assert_null(meet(B, A)->peer.attachment);
	assert_int_equal(meet(B, A)->peer.state, PEER_PRESENT);
	settle();
	talk_of_all(A, B);
	close_endpoints();
}

/* B has met A again. A does not meet B, because A must leave after all: B learns that A has detached. */
static void test_who_was_not_met_again_is_detached_from(void **state)
{
	(void)state;
	part();
	request_route(A, ROUTE_RETURN);
	transport_begin_switches(transport_of(A));
	transport_check_peers(transport_of(A));
	(void)network_progress_full(transport_of(B));
	assert_non_null(meet(B, A)->peer.attachment);
	request_route(A, ROUTE_LEAVE);
	settle();
	assert_null(meet(A, B)->peer.attachment);
	assert_null(meet(B, A)->peer.attachment);
	talk_of_all(A, B);
	close_endpoints();
}

/*
 * Both came back to the region and detach from it again, each by its own decision. A has received B's detach.
 * B has not yet confirmed A's.
 */
static void detach_again(void)
{
	part();
	request_route(A, ROUTE_RETURN);
	settle();
	assert_through_region(A, B);
	/* No checks by the clock during polls, so that messages come in the order of the calls below. */
	transport_of(A)->next_check = UINT64_MAX;
	transport_of(B)->next_check = UINT64_MAX;
	request_route(A, ROUTE_LEAVE);
	prove();
	transport_begin_switches(transport_of(A));
	transport_begin_switches(transport_of(B));
	while (transport_of(A)->switches + transport_of(B)->switches > 0)
		fake_settle(&world);
	transport_begin_switches(transport_of(A));
	transport_begin_switches(transport_of(B));
	(void)network_progress_full(transport_of(A));
	(void)network_progress_full(transport_of(B));
	assert_int_equal(beyond(A, B)->detach_heard, DETACH_FIRST);
	assert_int_equal(beyond(B, A)->detach_heard, DETACH_FIRST);
	transport_begin_switches(transport_of(A));
	assert_null(meet(A, B)->peer.attachment);
}

/* A asks B to meet a second time while B, which met A before, still detaches from the first meeting. */
static void test_who_detaches_meets_nobody_before_it_detached(void **state)
{
	(void)state;
	detach_again();
	request_route(A, ROUTE_RETURN);
	transport_begin_switches(transport_of(A));
	transport_check_peers(transport_of(A));
	(void)network_progress_full(transport_of(B));
	assert_int_equal(beyond(B, A)->detach_heard, DETACH_SECOND);
	/* If B answered, A would confirm and move back before it learns that B has detached. */
	(void)network_progress_full(transport_of(A));
	(void)network_progress_full(transport_of(B));
	transport_begin_switches(transport_of(B));
	transport_begin_switches(transport_of(A));
	settle();
	assert_int_equal(meet(A, B)->peer.state, PEER_PRESENT);
	assert_int_equal(meet(B, A)->peer.state, PEER_PRESENT);
	assert_through_region(A, B);
	talk_of_all(A, B);
	close_endpoints();
}

/* The same, and when B asks A, the manager wants the network for a while. */
static void test_who_was_refused_for_a_while_asks_again(void **state)
{
	(void)state;
	detach_again();
	request_route(A, ROUTE_RETURN);
	transport_begin_switches(transport_of(A));
	transport_check_peers(transport_of(A));
	(void)network_progress_full(transport_of(B));
	transport_begin_switches(transport_of(B));
	request_route(A, ROUTE_NETWORK);
	settle();
	assert_null(meet(A, B)->peer.attachment);
	assert_null(meet(B, A)->peer.attachment);
	request_route(A, ROUTE_RETURN);
	settle();
	talk_of_all(A, B);
	assert_through_region(A, B);
	close_endpoints();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_detach_that_began_ends),
		cmocka_unit_test(test_a_detach_that_began_fails_over),
		cmocka_unit_test(test_who_detached_is_called_back_by_who_stays),
		cmocka_unit_test(test_who_could_not_say_that_it_detaches_stays),
		cmocka_unit_test(test_who_calls_back_and_leaves_lives_on),
		cmocka_unit_test(test_who_was_not_met_again_is_detached_from),
		cmocka_unit_test(test_who_detaches_meets_nobody_before_it_detached),
		cmocka_unit_test(test_who_was_refused_for_a_while_asks_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
