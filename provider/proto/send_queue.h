/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * send_queue.h - messages that a peer has no room for: kept here, in the order of the calls, so
 * that a send returns at once whatever its receiver does.
 *
 * A receiver that computes takes nothing, and soon its ring is full. What is sent to it from then
 * on waits in memory of our own and goes out as the receiver takes what was before; each peer has a
 * queue of its own, so that nobody waits for another's. Injected bytes are copied, others stay
 * where they are until they go. All queues of an endpoint together have a bound.
 */
#ifndef VICINAL_PROTO_SEND_QUEUE_H
#define VICINAL_PROTO_SEND_QUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "match/match.h"

/* All queues of an endpoint take so much memory, if VICINAL_SEND_QUEUE says nothing else. */
#define SEND_QUEUE_BYTES (UINT64_C(64) << 20)
/*
 * So many messages wait for a peer before it matters whether it takes any: as many as tx_attr.size
 * offers. To one that does, more are taken only as it does, so that a fast sender runs no further
 * ahead of a slow receiver than that. If more than these wait when it begins to take them, one more is
 * taken for each two that go: a send never waits for all of them, and in time they are as many again.
 */
#define SEND_QUEUE_FREE 1024U

struct messenger;
struct msg_peer;
struct send_request;
struct queued_send;

/* Of one peer. */
struct send_queue {
	struct match_link link; /* in messenger.send_queues, while there are any */
	struct queued_send *first;
	struct queued_send **end; /* where the next goes */
	uint32_t count;
	uint32_t
		room; /* how many may wait while the peer takes some: as many as before, or SEND_QUEUE_FREE */
	uint64_t moved; /* when the last went out, once there are SEND_QUEUE_FREE */
};

/* Of all queues of an endpoint. */
struct send_queues {
	struct match_link waiting; /* struct send_queue: those that have any */
	uint32_t count;            /* messages */
	uint32_t polls_to_skip;    /* the last ones found no room */
	uint64_t gone;             /* messages that do not wait any more */
	uint64_t bytes;
	uint64_t most;
	uint64_t still;                   /* nanoseconds in which one that takes none takes none for now */
	bool full;                        /* people were told */
	void (*notice)(const char *text); /* for people; NULL: they are not told */
};

void send_queues_open(struct send_queues *queues);
/* Tell people how much waits, and what follows of it. */
void send_queues_tell(const struct send_queues *queues, const char *consequence);

/*
 * Keep a message for its peer. Returns 0, -EAGAIN if the queues are full or the peer takes messages
 * (progress, then try again), or -ENOMEM.
 */
ssize_t send_queue_add(struct messenger *messenger, const struct send_request *request);

/* Send what there is room for now, of all peers in turn. Returns how many messages went. */
uint32_t send_queues_work(struct messenger *messenger);

/* Does any wait for a peer in another process, which may take it yet when we only wait? */
bool send_queues_owed(const struct messenger *messenger);

/* The peer failed: what waits for it fails. Returns whether anybody is told. */
bool send_queue_fail(struct messenger *messenger, struct msg_peer *to);
/* The same, and nobody is told. */
void send_queue_drop(struct messenger *messenger, struct msg_peer *to);

#endif
