/* SPDX-License-Identifier: BSD-3-Clause */
/* hostile_node.c - see hostile_node.h. */
#include "hostile_node.h"

struct world world;
struct node *const victim = &world.nodes[0];
struct node *const hostile = &world.nodes[1];

int open_hostile_world(void **state)
{
	(void)state;
	world_open(&world, 2, 4, WORLD_SECTION_BYTES);
	assert_int_equal(node_send(hostile, victim, "x", 1, 0, FI_MSG, NULL), 0);
	assert_int_equal(node_send(victim, hostile, "y", 1, 0, FI_MSG, NULL), 0);
	world_settle(&world);
	return 0;
}

int close_hostile_world(void **state)
{
	(void)state;
	/* The hostile node makes no progress. An orderly close would wait for a victim that reads no more. */
	node_die(hostile);
	world_close(&world);
	return 0;
}

void write_slot(const struct slot *slot)
{
	struct ring_out *ring = &world_peer(hostile, victim)->peer.out;
	struct ring_slot *to = ring_next(ring, 0);

	shared_store_u64(&to->word, slot->word);
	shared_copy_out(to->payload, slot->payload, sizeof(slot->payload));
	ring_push(ring, control_word(slot->kind, slot->flags, slot->length), 1);
}

struct peer *hostile_peer(void)
{
	return &world_peer(victim, hostile)->peer;
}

void progress(void)
{
	for (int i = 0; i < 200; i++)
		(void)messenger_progress(victim->messenger);
}

void assert_violation(const char *what)
{
	if (hostile_peer()->state != PEER_FAILED || hostile_peer()->failure != -EPROTO)
		fail_msg("this was accepted: %s", what);
}
