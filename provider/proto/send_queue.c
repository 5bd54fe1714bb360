/* SPDX-License-Identifier: BSD-3-Clause */
/* send_queue.c - see send_queue.h. */
#include "proto/send_queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/messenger.h"

/* In one poll, over all peers, so that arriving slots are not delayed. */
#define SENDS_PER_POLL 32U
/*
 * If no peer had room, this many polls skip the queues, because each try reads every waiting peer's credit.
 */
#define POLLS_TO_SKIP 16U
/* A peer that took nothing for this long is busy. Otherwise rings are read within a few microseconds. */
#define STILL_NANOSECONDS UINT64_C(100000)

/* A waiting message. */
struct queued_send {
	struct queued_send *next;
	struct send_request request; /* its pieces are `pieces` */
	size_t bytes;                /* of this struct, including `copied` */
	struct iovec pieces[BUFFER_PIECES];
	unsigned char copied[]; /* injected bytes */
};
_Static_assert(SEND_QUEUE_BYTES / (sizeof(struct queued_send) + MESSENGER_INJECT_BYTES) >=
		       SEND_QUEUE_FREE_MAX,
	       "fi_getinfo() offers a larger tx_attr.size than the queue can hold");

void send_queues_open(struct send_queues *queues)
{
	*queues = (struct send_queues){
		.most = SEND_QUEUE_BYTES, .free = SEND_QUEUE_FREE, .still = STILL_NANOSECONDS};
	match_list_open(&queues->waiting);
}

static struct msg_peer *of_queue(struct match_link *link)
{
	return (struct msg_peer *)(void *)((char *)link - offsetof(struct msg_peer, queue) -
					   offsetof(struct send_queue, link));
}

void send_queues_tell(const struct send_queues *queues, const char *consequence)
{
	char text[256];

	if (queues->notice == NULL)
		return;
	(void)snprintf(text, sizeof(text), "%u messages (%llu KiB) wait for busy peers: %s", queues->count,
		       (unsigned long long)(queues->bytes >> 10), consequence);
	queues->notice(text);
}

/* Whether the peer is taking messages. If so, there is room soon, and the sender need not run ahead. */
static bool is_switching(const struct send_queues *queues, struct send_queue *queue)
{
	uint64_t now = monotonic_now();

	if (queue->moved == 0)
		queue->moved = now;
	return now - queue->moved < queues->still;
}

static bool may_wait(const struct send_queues *queues, struct send_queue *queue)
{
	if (queue->count < queues->free) {
		queue->room = queues->free;
		return true;
	}
	if (queue->count < queue->room) {
		queue->room--;
		return true;
	}
	if (is_switching(queues, queue))
		return false;
	queue->room = queue->count + 1;
	return true;
}

static void append(struct send_queues *queues, struct msg_peer *to, struct queued_send *entry)
{
	struct send_queue *queue = &to->queue;

	if (queue->count++ == 0) {
		queue->end = &queue->first;
		queue->moved = 0;
		queue->room = queues->free;
		match_append(&queues->waiting, &queue->link);
		to->peer.waits = true;
	}
	entry->next = NULL;
	*queue->end = entry;
	queue->end = &entry->next;
	queues->count++;
	queues->bytes += entry->bytes;
}

__attribute__((cold, noinline)) ssize_t send_queue_add(struct messenger *messenger,
						       const struct send_request *request)
{
	struct send_queues *queues = &messenger->send_queues;
	bool copies = (request->flags & FI_INJECT) != 0;
	size_t bytes = sizeof(struct queued_send) + (copies ? request->length : 0);

	if (request->length > SSIZE_MAX)
		return -EMSGSIZE;
	if (queues->most == 0 || !may_wait(queues, &request->to->queue))
		return -EAGAIN;
	if (queues->bytes + bytes > queues->most) {
		if (!queues->full)
			send_queues_tell(queues, "further sends wait, too. Let the peers receive, or raise "
						 "VICINAL_SEND_QUEUE");
		queues->full = true;
		return -EAGAIN;
	}
	struct queued_send *entry = malloc(bytes);
	if (entry == NULL)
		return -ENOMEM;
	entry->request = *request;
	entry->request.pieces = entry->pieces;
	entry->bytes = bytes;
	if (copies) {
		entry->request.count = 1;
		entry->pieces[0] = (struct iovec){entry->copied, request->length};
		(void)send_gather(request, entry->copied);
	} else {
		for (size_t i = 0; i < request->count; i++)
			entry->pieces[i] = request->pieces[i];
	}
	append(queues, request->to, entry);
	return 0;
}

/* Removes the first message of a queue. */
static void remove_first(struct send_queues *queues, struct msg_peer *to)
{
	struct send_queue *queue = &to->queue;
	struct queued_send *entry = queue->first;

	queue->first = entry->next;
	queues->count--;
	queues->bytes -= entry->bytes;
	if (--queue->count == 0) {
		match_unlink(&queue->link);
		to->peer.waits = to->paused;
	}
	free(entry);
}

/*
 * Without FI_COMPLETION, nothing reports an injected message, as when a message in a ring is lost with its
 * receiver.
 */
static bool is_told(const struct send_request *request)
{
	return (request->flags & FI_INJECT) == 0 || (request->flags & FI_COMPLETION) != 0;
}

static void end_in_error(struct messenger *messenger, const struct send_request *request, int error,
			 const char *reason)
{
	if (is_told(request))
		send_complete(messenger, request->context, request->flags, request->tag, error, reason);
	else
		messenger_count(messenger, messenger->send_counter, error);
}

/* Sends at most `budget` messages of a queue. Returns how many were sent or failed. */
static uint32_t work_off(struct messenger *messenger, struct msg_peer *to, uint32_t budget)
{
	struct send_queue *queue = &to->queue;
	uint32_t done = 0;

	while (queue->count > 0 && done < budget && is_present(to) && !to->paused) {
		const struct send_request *request = &queue->first->request;
		ssize_t result = send_now(messenger, request);
		if (result == -EAGAIN)
			break;
		if (result != 0)
			end_in_error(messenger, request, (int)-result, to->peer.reason);
		remove_first(&messenger->send_queues, to);
		/* Send the rest in few frames, because each frame is a system call. */
		if (done++ == 0 && to->peer.network != NULL)
			network_ship_later(&to->peer);
	}
	messenger->send_queues.gone += done;
	if (done > 0)
		queue->moved = queue->count >= messenger->send_queues.free ? monotonic_now() : 0;
	return done;
}

uint32_t send_queues_work(struct messenger *messenger)
{
	struct send_queues *queues = &messenger->send_queues;
	struct match_link *last = queues->waiting.previous;
	uint32_t done = 0;

	if (queues->polls_to_skip > 0) {
		queues->polls_to_skip--;
		return 0;
	}
	/* Visit each peer once. A peer that had its turn moves to the end. */
	for (struct match_link *link = queues->waiting.next, *next; link != &queues->waiting; link = next) {
		struct msg_peer *to = of_queue(link);
		bool all = link == last;
		next = link->next;
		done += work_off(messenger, to, SENDS_PER_POLL - done);
		if (to->queue.count > 0) {
			match_unlink(link);
			match_append(&queues->waiting, link);
		}
		if (all || done >= SENDS_PER_POLL)
			break;
	}
	if (done == 0)
		queues->polls_to_skip = POLLS_TO_SKIP;
	return done;
}

bool send_queues_owed(const struct messenger *messenger)
{
	const struct send_queues *queues = &messenger->send_queues;

	for (struct match_link *link = queues->waiting.next; link != &queues->waiting; link = link->next) {
		const struct peer *peer = &of_queue(link)->peer;
		if (peer->attachment == NULL ||
		    !member_is_of_this_process(peer->attachment->region, peer->slot))
			return true;
	}
	return false;
}

bool send_queue_fail(struct messenger *messenger, struct msg_peer *to)
{
	bool told = false;

	while (to->queue.count > 0) {
		const struct send_request *request = &to->queue.first->request;
		told |= is_told(request);
		end_in_error(messenger, request, -to->peer.failure, to->peer.reason);
		remove_first(&messenger->send_queues, to);
	}
	return told;
}

void send_queue_drop(struct messenger *messenger, struct msg_peer *to)
{
	while (to->queue.count > 0)
		remove_first(&messenger->send_queues, to);
}
