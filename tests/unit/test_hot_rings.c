/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_hot_rings.c - the rings that each poll reads. The list is correct after any events, idle rings leave
 * it, and all members of the smallest region find room for their rings.
 */
#include <stdlib.h>

#include "random.h"
#include "world.h"

#define SENDERS 40U
#define SECTION_BYTES (964U * 1024U)
/*
 * As in transport/region_progress.c: an idle ring becomes cold after this many polls, except the first few
 * rings.
 */
#define POLLS_UNTIL_COLD (2U * 4096U)
#define RINGS_KEPT 8U

static struct region *region;
static struct node receiver;
static struct node senders[SENDERS];

static struct transport *transport(void)
{
	return receiver.messenger->transport;
}

static void open_all(void)
{
	region = world_region(SENDERS + 1, SECTION_BYTES);
	node_open(&receiver, region);
	for (uint32_t i = 0; i < SENDERS; i++)
		node_open(&senders[i], region);
}

static void close_all(void)
{
	for (uint32_t i = 0; i < SENDERS; i++)
		if (senders[i].messenger != NULL)
			node_die(&senders[i]);
	node_die(&receiver);
	region_detach(region);
}

/* The list names each ring once, at the index that its peer knows, with the address of its next slot. */
static void assert_list(void)
{
	uint32_t hot = 0;

	for (uint32_t i = 0; i < transport()->hot_count; i++) {
		const struct hot_ring *ring = &transport()->hot[i];
		assert_int_equal(ring->peer->hot_index, i + 1);
		assert_ptr_equal(ring->control, &ring_at(&ring->peer->in, 0)->control);
		assert_int_equal(ring->lap, ring_lap(ring->peer->in.position, ring->peer->in.shift));
	}
	for (uint32_t source = 0; source < transport()->peer_end; source++)
		hot += transport()->peers[source] != NULL && transport()->peers[source]->hot_index != 0;
	assert_int_equal(hot, transport()->hot_count);
}

static void send_to_receiver(uint32_t sender)
{
	ssize_t result = node_send(&senders[sender], &receiver, "x", 1, 0, FI_TAGGED, NULL);

	assert_true(result == 0 || result == -EAGAIN);
	(void)messenger_progress(senders[sender].messenger);
}

static void test_the_list_is_so_whatever_comes(void **state)
{
	uint64_t random = 1;

	(void)state;
	open_all();
	for (int step = 0; step < 20000; step++) {
		uint32_t sender = (uint32_t)random_below(&random, SENDERS);
		switch (random_below(&random, 2000)) {
		case 0: /* all rings that are silent for this long leave the list */
			for (uint32_t poll = 0; poll < POLLS_UNTIL_COLD; poll++)
				(void)messenger_progress(receiver.messenger);
			assert_true(transport()->hot_count <= RINGS_KEPT);
			break;
		case 1: /* dies, and another member takes the slot */
			node_die(&senders[sender]);
			for (int check = 0; check < 4; check++) {
				transport_check_peers(transport());
				(void)messenger_progress(receiver.messenger);
			}
			node_open(&senders[sender], region);
			break;
		default:
			send_to_receiver(sender);
			(void)messenger_progress(receiver.messenger);
		}
		assert_list();
	}
	close_all();
}

static void test_a_busy_ring_stays(void **state)
{
	(void)state;
	open_all();
	for (uint32_t sender = 0; sender < SENDERS; sender++)
		send_to_receiver(sender);
	for (uint32_t poll = 0; poll < POLLS_UNTIL_COLD; poll++) {
		if (poll % 256 == 0)
			send_to_receiver(SENDERS - 1);
		(void)messenger_progress(receiver.messenger);
	}
	assert_true(transport()->hot_count <= RINGS_KEPT);
	assert_true(world_peer(&receiver, &senders[SENDERS - 1])->peer.hot_index != 0);
	assert_list();
	close_all();
}

/* In the smallest possible sections, the offsets between rings do not cost any peer its ring. */
static void test_all_have_rings_in_the_smallest_sections(void **state)
{
	const uint32_t members[] = {2, 16, 64, 65, 130};

	(void)state;
	for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
		struct node *nodes = calloc(members[i], sizeof(*nodes));
		uint64_t least = REGION_ROUND_UP(SECTION_BYTES_MIN(members[i]), REGION_PAGE);
		assert_non_null(nodes);
		region = world_region(members[i], least < REGION_SECTION_MIN ? REGION_SECTION_MIN : least);
		for (uint32_t node = 0; node < members[i]; node++)
			node_open(&nodes[node], region);
		for (uint32_t from = 0; from < members[i];
		     from += from + 1 < members[i] - 1 ? members[i] / 2 : 1)
			for (uint32_t to = 0; to < members[i]; to++)
				assert_int_equal(
					transport_connect(&world_peer(&nodes[from], &nodes[to])->peer), 0);
		for (uint32_t node = 0; node < members[i]; node++)
			node_die(&nodes[node]);
		region_detach(region);
		free(nodes);
	}
}

/* Otherwise the next slots of all rings would share a few sets of the receiver's cache. */
static void test_rings_of_members_begin_at_different_lines(void **state)
{
	uint64_t lines = 0;

	(void)state;
	open_all();
	for (uint32_t sender = 0; sender < SENDERS; sender++)
		send_to_receiver(sender);
	(void)messenger_progress(receiver.messenger);
	for (uint32_t sender = 0; sender < SENDERS; sender++) {
		uintptr_t ring = (uintptr_t)world_peer(&senders[sender], &receiver)->peer.out.slots;
		lines |= UINT64_C(1) << ring % REGION_PAGE / REGION_LINE;
	}
	assert_int_equal(__builtin_popcountll(lines), SENDERS);
	close_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_list_is_so_whatever_comes),
		cmocka_unit_test(test_a_busy_ring_stays),
		cmocka_unit_test(test_all_have_rings_in_the_smallest_sections),
		cmocka_unit_test(test_rings_of_members_begin_at_different_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
