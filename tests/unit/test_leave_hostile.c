/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers that send what is only valid in a region to a member that wants to leave it, or has left it. */
#include "regions.h"

#include <string.h>
#include <unistd.h>

#include "region/heap.h"
#include "transport/failover.h"
#include "transport/network_transport.h"
#include "transport/region_transport.h"

/* Write a request, as the manager or any process that may write the region can. */
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

/* `from` announces to `to` that it continues over the network. */
static void deliver_failover(int to, int from, uint32_t sequence)
{
	const struct member *member = transport_of(from)->attachments[0].member;
	struct {
		struct frame_header header;
		struct frame_failover failover;
	} frame = {
		.header = {.magic = FRAME_MAGIC,
			   .version = FRAME_VERSION,
			   .kind = FRAME_FAILOVER,
			   .stream = 1,
			   .sequence = sequence,
			   .to = transport_of(to)->attachments[0].member->nonce,
			   .from = member->nonce},
		.failover = {.region = {member->region->id[0], member->region->id[1]},
			     .slot = member->slot,
			     .epoch = member->epoch},
	};

	network_write_hello(transport_of(from)->network, &frame.failover.hello);
	assert_true(fake_deliver(&world.ends[to], &frame, sizeof(frame)));
	fake_settle(&world);
}

/*
 * B broke the protocol and continues over the network. A is to leave, and cannot, because its application has
 * memory in the region. So A keeps its state for B, and B may announce once more that it continues.
 */
static void test_who_cannot_leave_forgets_nobody(void **state)
{
	(void)state;
	heap_bytes = (uint64_t)64 * REGION_PAGE;
	open_endpoints("1", "1", "");
	talk(A, B, 8, 1);
	talk(B, A, 8, 2);
	void *block = heap_allocate(transport_of(A)->heap, REGION_PAGE, 1, false);
	assert_non_null(block);
	ring_push(&meet(B, A)->peer.out, control_word(200, 0, 0), 1);
	settle();
	struct peer *peer = transport_of(A)->peers[transport_of(B)->attachments[0].member->slot];
	if (peer->state == PEER_ERROR_PENDING)
		(void)transport_refuse(peer);
	assert_int_equal(peer->failover, FAILOVER_DONE);
	transport_of(A)->attachments[0].next_search = UINT64_MAX; /* it comes back to no other region */
	request_route(A, ROUTE_LEAVE);
	settle();
	assert_false(transport_of(A)->attachments[0].region->left);
	assert_non_null(peer->attachment);
	for (uint32_t sequence = 0; sequence < 2; sequence++)
		deliver_failover(A, B, sequence);
	assert_int_equal(peer->state, PEER_PRESENT);
	/* Without that memory A leaves, and keeps no state of the region. */
	assert_true(heap_release(block));
	settle();
	assert_true(transport_of(A)->attachments[0].region->left);
	assert_null(peer->attachment);
	/* A ring for this peer is lost. If A read it as a peer that sleeps, A would ring at each message. */
	shared_store_u32(peer->doorbell, 1);
	assert_int_equal(shared_load_u32(peer->sleeping_word), 0);
	for (uint32_t sequence = 0; sequence < 2; sequence++)
		deliver_failover(A, B, sequence);
	assert_int_equal(peer->state, PEER_PRESENT);
	close_endpoints();
	heap_bytes = 0;
}

/* Another region replaces the region of both, and both join it. */
static void move_to_another(void)
{
	for (int i = A; i <= B; i++) {
		transport_of(i)->attachments[0].next_search = UINT64_MAX;
		request_route(i, ROUTE_LEAVE);
		settle();
		assert_true(transport_of(i)->attachments[0].region->left);
	}
	assert_int_equal(unlink(files[0]), 0);
	assert_int_equal(link(files[1], files[0]), 0);
	for (int i = A; i <= B; i++) {
		transport_of(i)->attachments[0].next_search = 0;
		settle();
		assert_non_null(transport_of(i)->attachments[0].next);
	}
}

/*
 * A offered a large message for a single copy in a region, and left the region. B answers the offer in
 * another region, where its slot has another number. In the first region, that number stands for memory that
 * only A has.
 */
static void test_an_offer_ends_with_its_region(void **state)
{
	(void)state;
	heap_bytes = (uint64_t)256 * REGION_PAGE;
	open_endpoints("1", "1", "");
	for (int i = A; i <= B; i++)
		assert_int_equal(single_copy_open(world.nodes[i].node.messenger, SINGLE_COPY_AUTO), 0);
	talk(A, B, 8, 1);
	talk(B, A, 8, 2);
	struct msg_peer *to = meet(A, B);
	fill_bytes(out, LONG, 3);
	assert_int_equal(fake_send(&world.nodes[A], to, out, LONG, 77), 0);
	fake_settle(&world);
	struct send *send = (struct send *)(void *)world.nodes[A].node.messenger->awaiting.next;
	assert_non_null(send->copy);
	assert_true(send->waits_for_clear);
	move_to_another();
	assert_true(to->peer.attachment == transport_of(A)->attachments[0].next);
	struct control_slot clear = {
		.control = control_word(WIRE_CLEAR, 0, 0),
		.word = send->id,
		.clear = {.id = 1,
			  .accepted = LONG,
			  .method = WIRE_BY_REGION,
			  .transfer = transfer_id(3, 1),
			  .offset = transport_of(A)->attachments[0].region->section_bytes - heap_bytes},
	};
	struct node *other = &world.nodes[B].node;
	assert_true(rendezvous_send_control(other->messenger, meet(B, A), &clear));
	for (int round = 0; round < 50; round++) {
		(void)messenger_progress(world.nodes[A].node.messenger);
		(void)transport_progress_full(transport_of(A));
	}
	assert_int_equal(to->peer.failure, -EPROTO);
	assert_true(match_is_empty(&world.nodes[A].node.messenger->awaiting));
	close_endpoints();
	heap_bytes = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_who_cannot_leave_forgets_nobody),
		cmocka_unit_test(test_an_offer_ends_with_its_region),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
