/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * match.h - which receive takes which message: tags, sources, wildcards, in order.
 *
 * Two lists of posted receives are searched for a message: those for its source, and
 * those for any source. The earlier match of the two wins, told by a sequence number, so
 * wildcard and directed receives keep the order in which they were posted. Messages that
 * came before their receive wait in two lists each: their source's, and everybody's.
 *
 * Structs of the layer above embed these links; nothing is allocated here but the heads.
 */
#ifndef VICINAL_MATCH_MATCH_H
#define VICINAL_MATCH_MATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MATCH_ANY_SOURCE UINT32_MAX

/* A doubly linked circular list with its head as a node of it. */
struct match_link {
	struct match_link *next;
	struct match_link *previous;
};

/* A posted receive. */
struct match_receive {
	struct match_link link;
	uint64_t tag;
	uint64_t ignore; /* bits of the tag that need not agree */
	uint64_t sequence;
	uint32_t source; /* member slot, or MATCH_ANY_SOURCE */
};

/* A message that no receive was posted for. */
struct match_message {
	struct match_link by_source; /* must be first: see match_from_source() */
	struct match_link by_arrival;
	uint64_t tag;
	uint32_t source;
};

struct match_queue {
	uint32_t sources;
	uint64_t sequence;
	struct match_link any_source; /* receives */
	struct match_link arrivals;   /* messages, all */
	struct match_link *receives;  /* by source */
	struct match_link *messages;  /* by source */
};

/* Returns 0 or -ENOMEM. `sources` is how many member slots there are. */
int match_open(struct match_queue *queue, uint32_t sources);
void match_close(struct match_queue *queue);

static inline bool match_is_empty(const struct match_link *head)
{
	return head->next == head;
}

static inline void match_unlink(struct match_link *link)
{
	link->previous->next = link->next;
	link->next->previous = link->previous;
}

static inline void match_append(struct match_link *head, struct match_link *link)
{
	link->previous = head->previous;
	link->next = head;
	head->previous->next = link;
	head->previous = link;
}

static inline void match_post(struct match_queue *queue, struct match_receive *receive)
{
	receive->sequence = queue->sequence++;
	match_append(receive->source == MATCH_ANY_SOURCE ? &queue->any_source
							 : &queue->receives[receive->source],
		     &receive->link);
}

static inline void match_withdraw(struct match_receive *receive)
{
	match_unlink(&receive->link);
}

static inline void match_keep(struct match_queue *queue, struct match_message *message)
{
	match_append(&queue->messages[message->source], &message->by_source);
	match_append(&queue->arrivals, &message->by_arrival);
}

static inline void match_take(struct match_message *message)
{
	match_unlink(&message->by_source);
	match_unlink(&message->by_arrival);
}

static inline struct match_message *match_from_arrival(struct match_link *link)
{
	return (struct match_message *)(void *)((char *)link - offsetof(struct match_message, by_arrival));
}

static inline struct match_message *match_from_source(struct match_link *link)
{
	return (struct match_message *)(void *)link;
}

static inline struct match_receive *match_first(struct match_link *head, uint64_t tag)
{
	for (struct match_link *link = head->next; link != head; link = link->next) {
		struct match_receive *receive = (struct match_receive *)(void *)link;
		if (((receive->tag ^ tag) & ~receive->ignore) == 0)
			return receive;
	}
	return NULL;
}

/*
 * The posted receive that a message from `source` with `tag` goes to, or NULL. It stays
 * posted: a buffer for several messages takes more than one.
 */
static inline struct match_receive *match_arrival(struct match_queue *queue, uint32_t source, uint64_t tag)
{
	struct match_receive *directed = match_first(&queue->receives[source], tag);

	if (__builtin_expect(match_is_empty(&queue->any_source), 1))
		return directed;
	struct match_receive *any = match_first(&queue->any_source, tag);
	if (directed == NULL || (any != NULL && any->sequence < directed->sequence))
		return any;
	return directed;
}

/* The earliest waiting message that a receive for (source, tag, ignore) takes, or NULL. */
struct match_message *match_waiting(struct match_queue *queue, uint32_t source, uint64_t tag,
				    uint64_t ignore);

/*
 * Walk all posted receives, in no particular order: `previous` NULL for the first.
 * The one returned last may be withdrawn only after the walk moved on.
 */
struct match_receive *match_each_receive(struct match_queue *queue, struct match_receive *previous);

#endif
