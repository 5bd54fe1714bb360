/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hostile_node.h - a victim and a hostile node. The hostile node keeps to the protocol until both are
 * connected; then the test writes its ring by hand.
 */
#ifndef VICINAL_TESTS_HOSTILE_NODE_H
#define VICINAL_TESTS_HOSTILE_NODE_H

#include "world.h"

extern struct world world;
extern struct node *const victim;
extern struct node *const hostile;

int open_hostile_world(void **state);
int close_hostile_world(void **state);
#define WITH_WORLD(name) cmocka_unit_test_setup_teardown(name, open_hostile_world, close_hostile_world)

/* A slot that the hostile node writes next into its ring to the victim. Any values are possible. */
struct slot {
	uint32_t kind;
	uint32_t flags;
	uint32_t length;
	uint64_t word;
	uint64_t payload[6];
};

void write_slot(const struct slot *slot);

/* The chunk and offset of a struct wire_piece, in one word. */
#define CHUNK_AT(chunk, offset) ((uint64_t)(offset) << 32 | (chunk))
#define SECTION WORLD_SECTION_BYTES

/* Only the victim makes progress. */
void progress(void);

/* The hostile node as the victim knows it. */
struct peer *hostile_peer(void);
/* Check that the hostile node lost its connection because it broke the protocol. */
void assert_violation(const char *what);

#endif
