/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * send_queue.h - messages for which a peer has no room. They wait in the order of the calls, so that a send
 * returns at once, whatever its receiver does.
 *
 * A receiver that computes takes no messages, and soon its ring is full. Further messages wait in the
 * sender's private memory, and are sent as the receiver takes earlier ones. Each peer has its own queue, so
 * that no message waits for another peer. Injected bytes are copied; other bytes stay in the application's
 * buffers until they are sent. The memory of all queues of an endpoint has a bound.
 */
#ifndef VICINAL_PROTO_SEND_QUEUE_H
#define VICINAL_PROTO_SEND_QUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "match/match.h"

/* The default of VICINAL_SEND_QUEUE: the most memory of all queues of an endpoint. */
#define SEND_QUEUE_BYTES (UINT64_C(64) << 20)
/*
 * This many messages may wait for a peer whether it takes messages or not: the tx_attr.size of an application
 * that requests no more. To a peer that takes messages, more are accepted only as it takes them, so that a
 * fast sender runs no further ahead of a slow receiver. If more messages wait when the peer begins to take
 * them, one is accepted for each two that leave. So a send never waits for the whole queue, and in time the
 * queue shrinks to this length.
 */
#define SEND_QUEUE_FREE 1024U
/* The most that an application can request. So many injected messages fit in SEND_QUEUE_BYTES. */
#define SEND_QUEUE_FREE_MAX 8192U

struct messenger;
struct msg_peer;
struct send_request;
struct queued_send;

/* The queue of one peer. */
struct send_queue {
	struct match_link link; /* in messenger.send_queues, while the queue has messages */
	struct queued_send *first;
	struct queued_send **end; /* where the next message is linked in */
	uint32_t count;
	uint32_t room;  /* how many may wait while the peer takes messages: at least `free` */
	uint64_t moved; /* when the last message was sent, once `free` messages wait */
};

/* All queues of an endpoint. */
struct send_queues {
	struct match_link waiting; /* struct send_queue: queues with messages */
	uint32_t count;            /* messages */
	uint32_t polls_to_skip;    /* the last try found no room */
	uint64_t gone;             /* messages that were sent or failed */
	uint64_t bytes;
	uint64_t most;
	uint32_t free;  /* SEND_QUEUE_FREE, or the larger tx_attr.size that the application requested */
	uint64_t still; /* nanoseconds after which a peer that takes nothing is busy */
	bool full;      /* the user was told */
	void (*notice)(const char *text); /* tells the user; NULL: nobody is told */
};

void send_queues_open(struct send_queues *queues);
/* Tells the user how many messages wait, and the consequence. */
void send_queues_tell(const struct send_queues *queues, const char *consequence);

/*
 * Queues a message for its peer. Returns 0, -EAGAIN if the queues are full or the peer takes messages (make
 * progress and try again), or -ENOMEM.
 */
ssize_t send_queue_add(struct messenger *messenger, const struct send_request *request);

/*
 * Sends queued messages for which there is room now, of all peers in turn. Returns how many were sent or
 * failed.
 */
uint32_t send_queues_work(struct messenger *messenger);

/* Whether a message waits for a living peer in another process. */
bool send_queues_owed(const struct messenger *messenger);

/* The peer failed, so its queued messages fail. Returns whether the application is told of any. */
bool send_queue_fail(struct messenger *messenger, struct msg_peer *to);
/* Drops the peer's queued messages without telling the application. */
void send_queue_drop(struct messenger *messenger, struct msg_peer *to);

#endif
