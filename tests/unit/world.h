/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * world.h - a region in memory and messengers on it, all in one process and stepped by
 * hand, so that every interleaving is the test's choice and no test depends on time.
 */
#ifndef VICINAL_TESTS_WORLD_H
#define VICINAL_TESTS_WORLD_H

/* cmocka wants these before itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "proto/messenger.h"
#include "random.h"

#define WORLD_NODES 4U
#define WORLD_SECTION_BYTES (960U * 1024U)
#define WORLD_TIMEOUT UINT64_C(30000000000)

/* So many rounds of progress without the awaited event are taken for a hang. */
#define WORLD_PATIENCE 1000000U

struct node {
	struct messenger *messenger;
	struct completion_queue sends;
	struct completion_queue receives;
	struct completion_counter sent;
	struct completion_counter received;
};

struct world {
	struct region *region;
	struct node nodes[WORLD_NODES];
	uint32_t count;
};

/*
 * A region on a file without a name, mapped and checked. Give back with region_detach(), or with
 * world_region_close() to have its memory, arenas as they are, for the next one like it.
 */
struct region *world_region(uint32_t members, uint64_t section_bytes);
/* The same with heaps, of so many of each section's bytes. */
struct region *world_region_with_heaps(uint32_t members, uint64_t section_bytes, uint64_t heap_bytes);
void world_region_close(struct region *region);

/* `count` nodes on a region of `members` slots. Fails the test if that cannot be. */
void world_open(struct world *world, uint32_t count, uint32_t members, uint64_t section_bytes);
/* What is sent is read first, so that no messenger waits for another that is not stepped. */
void world_close(struct world *world);

void node_open(struct node *node, struct region *region);
void node_close(struct node *node);
/* The node ends as if killed: its lock is gone, its slot and section stay as they are. */
void node_die(struct node *node);

/* One round: every node makes progress once. */
void world_step(struct world *world);
/* Rounds until nothing moves any more. */
void world_settle(struct world *world);
/* Rounds until `queue` has a completion; fails the test if none comes. Takes it out. */
struct completion world_await(struct world *world, struct completion_queue *queue);
/* The same, and it must be a success. */
struct completion world_await_good(struct world *world, struct completion_queue *queue);
/* Notice deaths now, and deal with them. */
void world_check_peers(struct world *world);

/* `to`, as `from` knows it. */
struct msg_peer *world_peer(const struct node *from, const struct node *to);
uint32_t node_slot(const struct node *node);

/* Send or post, with a completion. `flags` has FI_TAGGED or FI_MSG, and more. */
ssize_t node_send(struct node *from, const struct node *to, const void *bytes, size_t length, uint64_t tag,
		  uint64_t flags, void *context);
ssize_t node_receive(struct node *at, const struct node *from, void *bytes, size_t length, uint64_t tag,
		     uint64_t flags, void *context);

/* A sequence of bytes that differs with `seed` and repeats at no power of two. */
void fill_bytes(unsigned char *bytes, size_t length, uint64_t seed);
void assert_bytes(const unsigned char *bytes, size_t length, uint64_t seed);

#endif
