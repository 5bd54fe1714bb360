/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fake_core.h - nodes that have a core besides their region, or instead of it: its ends are those of
 * fake_end.h, and all are stepped by hand.
 */
#ifndef VICINAL_TESTS_FAKE_CORE_H
#define VICINAL_TESTS_FAKE_CORE_H

#include "fake_end.h"
#include "world.h"

/* Slots of a region in which they all are. */
#define FAKE_MEMBERS 6U

/* A node with a region of its own. */
struct far_node {
	struct node node;
	struct region *region;
	struct directory directory;
	struct fake_end *end;
};

struct fake_world {
	struct fake_end ends[FAKE_ENDS];
	struct far_node nodes[FAKE_ENDS];
};

void fake_open(struct fake_world *world);
/* The same with all of them in one region, which has heaps of so many bytes; they have cores besides. */
void fake_open_together(struct fake_world *world, uint64_t heap_bytes);
/* The same with each on a region of its own, which may be another mapping of the same. */
void fake_open_in(struct fake_world *world, struct region *const regions[FAKE_ENDS]);
/* One node of those alone, without the others. */
void fake_open_node(struct fake_world *world, uint8_t index);
void fake_close(struct fake_world *world);
/* `to` as `from` knows it, told by its application. */
struct msg_peer *fake_peer(struct far_node *from, const struct far_node *to);
/* `whom` as `at` knows it, in the region that they share, or shared: it may confirm nobody any more. */
struct msg_peer *fake_neighbour(const struct far_node *at, const struct far_node *whom);
struct transport *fake_transport(const struct far_node *far);
/* All nodes make progress until nothing moves. */
void fake_settle(struct fake_world *world);
/* Send or receive with a completion. */
ssize_t fake_send(struct far_node *from, struct msg_peer *to, const void *bytes, size_t length, uint64_t tag);
ssize_t fake_receive(struct far_node *at, uint32_t source, void *bytes, size_t length, uint64_t tag);
/* The next completion, which must be there. */
struct completion fake_next(struct completion_queue *queue);
/*
 * A message whose bytes depend on `seed`, and must arrive: to the one whom `from` knows as `to`, which
 * expects it from `source`. Of FAKE_TALK_MAX bytes at most.
 */
#define FAKE_TALK_MAX ((size_t)1 << 20)
void fake_talk(struct fake_world *world, struct far_node *from, struct msg_peer *to,
	       struct far_node *receiver, uint32_t source, size_t length, uint64_t seed);
/* What the manager writes: this one is to be reached over the network. */
void fake_request_route(const struct far_node *whom, bool network);

/* The world of tests that all want the same, with everybody in one region: the setup and teardown of each. */
extern struct fake_world fakes;
int fake_setup(void **state);
int fake_teardown(void **state);

#endif
