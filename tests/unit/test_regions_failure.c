/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Endpoints in several regions, one of which cannot be used any more, or is not to be used: the others go on.
 */
#include "regions.h"

#include "transport/region_transport.h"

static void test_the_others_go_on_when_a_file_is_cut(void **state)
{
	(void)state;
	for (int which = 0; which < 2; which++) {
		open_endpoints("12", "1", "2");
		talk(A, B, 8, 1);
		talk(A, C, 8, 2);
		/* In the middle of one message with each peer. */
		assert_int_equal(fake_receive(&world.nodes[A], meet(A, B)->peer.source, in, LONG, 3), 0);
		assert_int_equal(fake_receive(&world.nodes[A], meet(A, C)->peer.source, in, LONG, 4), 0);
		cut_file(which == 0 ? '1' : '2');
		settle_switches();
		int gone = which == 0 ? B : C;
		int stays = which == 0 ? C : B;
		struct completion failed = fake_next(&world.nodes[A].node.receives);
		assert_int_equal(failed.error, ECONNABORTED);
		assert_true(completion_is_empty(&world.nodes[A].node.receives));
		assert_int_equal(
			fake_send(&world.nodes[stays], meet(stays, A), out, LONG, which == 0 ? 4 : 3), 0);
		fake_settle(&world);
		assert_int_equal(fake_next(&world.nodes[A].node.receives).error, 0);
		assert_int_equal(fake_next(&world.nodes[stays].node.sends).error, 0);
		assert_routes(A, stays, false);
		assert_int_equal(meet(A, gone)->peer.failover, FAILOVER_DONE);
		assert_int_equal(meet(gone, A)->peer.failover, FAILOVER_DONE);
		assert_routes(A, gone, true);
		assert_int_equal(meet(A, stays)->peer.failover, FAILOVER_NONE);
		/* Without an operation in progress, the next call reports the failure. */
		assert_int_equal(fake_send(&world.nodes[gone], meet(gone, A), out, 8, 9), -ECONNABORTED);
		talk_of_all(A, B);
		talk_of_all(A, C);
		close_endpoints();
	}
}

/* While we were paused, another member took our slot in one region. */
static void test_the_others_go_on_when_a_slot_is_lost(void **state)
{
	(void)state;
	open_endpoints("12", "1", "2");
	talk(A, B, 8, 1);
	talk(A, C, 8, 2);
	const struct member *lost = member_in(A, '2');
	shared_store_u64(&region_slot(lost->region, lost->slot)->claim,
			 (uint64_t)(lost->epoch + 1) << 32 | SLOT_CLAIMED);
	settle_switches();
	assert_true(transport_of(A)->attachments[1].evicted);
	assert_false(transport_of(A)->attachments[0].evicted);
	assert_routes(A, B, false);
	talk_of_all(A, B);
	/* The other peer has noticed as well, or is told. Both go on. */
	assert_int_equal(transport_of(A)->peers[MEMBERS + member_in(C, '2')->slot]->failover, FAILOVER_DONE);
	close_endpoints();
}

static void test_a_request_is_of_one_region(void **state)
{
	(void)state;
	open_endpoints("12", "1", "2");
	talk_of_all(A, B);
	talk_of_all(A, C);
	const struct member *moved = member_in(A, '2');
	shared_store_u64(&region_slot(moved->region, moved->slot)->requested_route,
			 (uint64_t)moved->epoch << 32 | 1);
	for (int round = 0; round < 20; round++)
		settle_switches();
	assert_routes(A, B, false);
	assert_routes(A, C, true);
	talk_of_all(A, B);
	talk_of_all(A, C);
	shared_store_u64(&region_slot(moved->region, moved->slot)->requested_route, 0);
	for (int round = 0; round < 20; round++)
		settle_switches();
	assert_routes(A, C, false);
	talk_of_all(A, C);
	close_endpoints();
}

static void request_of_a(char region, enum requested_route wanted)
{
	const struct member *member = member_in(A, region);

	shared_store_u64(&region_slot(member->region, member->slot)->requested_route,
			 (uint64_t)member->epoch << 32 | wanted);
	for (int round = 0; round < 20; round++)
		settle_switches();
}

/*
 * Two members that share another region meet there, whichever region one of them is to leave. If they met in
 * both regions, they would be two peers, and only one of these has a network name.
 */
static void test_who_leaves_one_of_two_that_are_shared(void **state)
{
	static const char *const of_b[] = {"12", "21"};

	(void)state;
	for (int round = 0; round < 4; round++) {
		bool met = round & 1;
		open_endpoints("12", of_b[round / 2], "2");
		if (met)
			talk_of_all(A, B);
		talk_of_all(A, C);
		request_of_a('2', ROUTE_LEAVE);
		assert_true(transport_of(A)->attachments[1].region->left);
		assert_routes(A, C, true);
		assert_routes(A, B, false);
		assert_int_equal(region_between(A, B), '1');
		assert_int_equal(region_between(B, A), '1');
		talk_of_all(A, B);
		request_of_a('1', ROUTE_NETWORK);
		assert_routes(A, B, true);
		talk_of_all(A, B);
		request_of_a('1', ROUTE_RETURN);
		assert_routes(A, B, false);
		talk_of_all(A, B);
		close_endpoints();
	}
}

static void test_a_member_that_dies(void **state)
{
	(void)state;
	open_endpoints("12", "1", "2");
	talk(A, B, 8, 1);
	talk(A, C, 8, 2);
	uint32_t of_c = meet(A, C)->peer.source;
	assert_int_equal(fake_receive(&world.nodes[A], of_c, in, 8, 3), 0);
	node_die(&world.nodes[C].node);
	for (int round = 0; round < 2; round++) {
		transport_check_peers(transport_of(A));
		(void)messenger_progress(world.nodes[A].node.messenger);
	}
	assert_int_equal(fake_next(&world.nodes[A].node.receives).error, ECONNRESET);
	assert_int_equal(transport_of(A)->peers[of_c]->state, PEER_FAILED);
	talk_of_all(A, B);
	close_endpoints();
}

/* In a forked child all regions belong to the parent. */
static void test_all_are_lost_in_a_child(void **state)
{
	(void)state;
	open_endpoints("12", "1", "2");
	talk(A, B, 8, 1);
	talk(A, C, 8, 2);
	uint32_t posted = world.ends[A].posted_count;
	transport_after_fork(transport_of(A));
	(void)messenger_progress(world.nodes[A].node.messenger);
	assert_int_equal(world.ends[A].posted_count, posted);
	for (uint32_t i = 0; i < 2; i++) {
		assert_true(transport_of(A)->attachments[i].evicted);
		assert_int_equal(transport_of(A)->attachments[i].member->lock_fd, -1);
	}
	assert_int_equal(transport_of(A)->peers[member_in(B, '1')->slot]->state, PEER_FAILED);
	assert_int_equal(transport_of(A)->peers[MEMBERS + member_in(C, '2')->slot]->state, PEER_FAILED);
	/* The core belongs to the parent as well. */
	assert_false(world.ends[A].closed);
	world.ends[A].closed = true;
	close_endpoints();
}

/* An endpoint that never used the network listens there only once its region is gone, and not in a child. */
static void test_a_child_does_not_begin_to_listen(void **state)
{
	(void)state;
	open_endpoints("1", "1", "");
	uint32_t posted = world.ends[A].posted_count;
	transport_after_fork(transport_of(A));
	(void)messenger_progress(world.nodes[A].node.messenger);
	assert_int_equal(world.ends[A].posted_count, posted);
	world.ends[A].closed = true;
	close_endpoints();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_others_go_on_when_a_file_is_cut),
		cmocka_unit_test(test_the_others_go_on_when_a_slot_is_lost),
		cmocka_unit_test(test_a_request_is_of_one_region),
		cmocka_unit_test(test_who_leaves_one_of_two_that_are_shared),
		cmocka_unit_test(test_a_member_that_dies),
		cmocka_unit_test(test_all_are_lost_in_a_child),
		cmocka_unit_test(test_a_child_does_not_begin_to_listen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
