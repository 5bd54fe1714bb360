/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * world.h - a region in memory and messengers on it, all in one process. The test steps them by hand, so it
 * chooses every interleaving, and no test depends on time.
 */
#ifndef VICINAL_TESTS_WORLD_H
#define VICINAL_TESTS_WORLD_H

/* cmocka needs these headers before its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "proto/messenger.h"
#include "random.h"

#define WORLD_NODES 4U
#define WORLD_SECTION_BYTES (960U * 1024U)
#define WORLD_TIMEOUT UINT64_C(30000000000)

/* A test hangs if this many rounds of progress do not bring the awaited event. */
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
 * A region in an unnamed file, mapped and checked. Release it with region_detach(). world_region_close()
 * keeps its memory instead, arenas included, for the next region of the same size.
 */
struct region *world_region(uint32_t members, uint64_t section_bytes);
/* Like world_region(), with a heap in each section: `heap_bytes` of the section's bytes. */
struct region *world_region_with_heaps(uint32_t members, uint64_t section_bytes, uint64_t heap_bytes);
void world_region_close(struct region *region);

/* Open `count` nodes on a region of `members` slots. Fails the test on any error. */
void world_open(struct world *world, uint32_t count, uint32_t members, uint64_t section_bytes);
/* Read all messages first, so that no messenger waits for another that makes no progress. */
void world_close(struct world *world);

void node_open(struct node *node, struct region *region);
void node_close(struct node *node);
/* End the node as if it were killed: its lock is gone, and its slot and section stay as they are. */
void node_die(struct node *node);

/* One round: every node makes progress once. */
void world_step(struct world *world);
/* Run rounds until nothing moves any more. */
void world_settle(struct world *world);
/* Run rounds until `queue` has a completion, and take it out. Fails the test if none comes. */
struct completion world_await(struct world *world, struct completion_queue *queue);
/* Like world_await(), and the completion must be a success. */
struct completion world_await_good(struct world *world, struct completion_queue *queue);
/* Check now which members died, and handle the deaths. */
void world_check_peers(struct world *world);

/* `to` as `from` knows it. */
struct msg_peer *world_peer(const struct node *from, const struct node *to);
uint32_t node_slot(const struct node *node);

/* Send, or post a receive, with a completion. `flags` contains FI_TAGGED or FI_MSG, and possibly more. */
ssize_t node_send(struct node *from, const struct node *to, const void *bytes, size_t length, uint64_t tag,
		  uint64_t flags, void *context);
ssize_t node_receive(struct node *at, const struct node *from, void *bytes, size_t length, uint64_t tag,
		     uint64_t flags, void *context);

/* A sequence of bytes that depends on `seed` and repeats at no power of two. */
void fill_bytes(unsigned char *bytes, size_t length, uint64_t seed);
void assert_bytes(const unsigned char *bytes, size_t length, uint64_t seed);

#endif
