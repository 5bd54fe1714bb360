/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fake_core.h - nodes with a core provider, with or without a region that they share. The core's endpoints
 * are those of fake_end.h. The test steps all nodes by hand.
 */
#ifndef VICINAL_TESTS_FAKE_CORE_H
#define VICINAL_TESTS_FAKE_CORE_H

#include "fake_end.h"
#include "world.h"

/* The number of slots of a region that all nodes share. */
#define FAKE_MEMBERS 6U

/* A node with a mapping of its own, which may be private memory. */
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
/* Like fake_open(), but all nodes share one region with heaps of `heap_bytes`. They have cores as well. */
void fake_open_shared(struct fake_world *world, uint64_t heap_bytes);
/*
 * Like fake_open_shared(), but each node uses its own entry of `regions`. The entries may be mappings of
 * the same region.
 */
void fake_open_in(struct fake_world *world, struct region *const regions[FAKE_ENDS]);
/* Open one node of fake_open(), without the other nodes. */
void fake_open_node(struct fake_world *world, uint8_t index);
void fake_close(struct fake_world *world);
/* `to` as `from` knows it after its application inserted the address. */
struct msg_peer *fake_peer(struct far_node *from, const struct far_node *to);
/*
 * `whom` as `at` knows it in the region that they share or shared. `at` may be unable to confirm members any
 * more.
 */
struct msg_peer *fake_neighbour(const struct far_node *at, const struct far_node *whom);
struct transport *fake_transport(const struct far_node *far);
/* All nodes make progress until a number of rounds find nothing. */
void fake_settle(struct fake_world *world);
/* Send or receive with a completion. */
ssize_t fake_send(struct far_node *from, struct msg_peer *to, const void *bytes, size_t length, uint64_t tag);
ssize_t fake_receive(struct far_node *at, uint32_t source, void *bytes, size_t length, uint64_t tag);
/* Take the next completion, which must be there. */
struct completion fake_next(struct completion_queue *queue);
/*
 * Send a message whose bytes depend on `seed`, and check that it arrives. `from` knows the receiver as `to`,
 * and the receiver expects the message from `source`. At most FAKE_TALK_MAX bytes.
 */
#define FAKE_TALK_MAX ((size_t)1 << 20)
void fake_talk(struct fake_world *world, struct far_node *from, struct msg_peer *to,
	       struct far_node *receiver, uint32_t source, size_t length, uint64_t seed);
/* Write the manager's request for the route to `whom`: over the network, or through the region. */
void fake_request_route(const struct far_node *whom, bool network);

/* The world that most tests use, with all nodes in one region, and the setup and teardown of each test. */
extern struct fake_world fakes;
int fake_setup(void **state);
int fake_teardown(void **state);

#endif
