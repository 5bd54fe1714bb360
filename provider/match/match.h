/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * match.h - which receive takes which message: tags, sources, wildcards, in order.
 *
 * Few are searched one by one: two lists of posted receives, those for the message's source
 * and those for any source, of which the earlier match wins, told by a sequence number.
 * Messages that came before their receive wait in two lists each: their source's, and
 * everybody's.
 *
 * Many are found in tables (table.h). Programs ask in few patterns: which bits of the tag
 * count, and whether the source does. There is a table for each, made when a search turns
 * out to be long. A receive is in the table of its pattern alone, and a message that arrives
 * looks into each. A message that waits is in all tables, and a receive looks into that of its
 * pattern. When few are left the tables go. Patterns beyond those that there is room for are
 * searched one by one.
 *
 * Structs of the layer above embed links and nodes; what is allocated here are the heads and
 * the tables, and without memory for tables everything is found as well, only later.
 */
#ifndef VICINAL_MATCH_MATCH_H
#define VICINAL_MATCH_MATCH_H

#include "match/table.h"

#define MATCH_ANY_SOURCE UINT32_MAX

/*
 * A search of so many steps makes tables. Measured: docs/decisions/0003. So few left in
 * tables leave them: far below, so that each change is paid for by many messages.
 */
#define MATCH_STEPS_MAX 16U
#define MATCH_FEW 4U

/* MPI has two patterns of source and two of tag, and each library one or two protocol bits in it. */
#define MATCH_RECEIVE_TABLES 8U
#define MATCH_MESSAGE_TABLES 4U

/* A posted receive. */
struct match_receive {
	struct match_node node; /* its `same` links the lists, while there are no tables */
	struct match_key key;   /* its source: a member slot, or MATCH_ANY_SOURCE */
	uint64_t ignore;        /* bits of the tag that need not agree */
	uint64_t sequence;
	uint32_t table; /* that it is in, while there are tables */
};

/* A message that no receive was posted for. */
struct match_message {
	struct match_link by_source;
	struct match_link by_arrival;
	struct match_key key;
	struct match_node nodes[MATCH_MESSAGE_TABLES]; /* of the tables in use */
};

struct match_queue {
	struct match_link any_source; /* receives; its `next` is NULL while receives are in tables */
	struct match_link arrivals;   /* messages, all */
	struct match_link *receives;  /* by source */
	struct match_link *messages;  /* by source */
	uint64_t sequence;
	uint32_t posted;  /* receives, in lists or tables */
	uint32_t most;    /* sources that there is room for */
	uint32_t sources; /* that there are: of more there may be, see match_add_sources() */
	bool receives_in_tables;
	bool messages_in_tables;
	/* only while there are tables */
	uint32_t receives_count;
	uint32_t receive_patterns; /* no table from here on is in use */
	struct match_table receive_tables[MATCH_RECEIVE_TABLES];
	struct match_link receives_apart; /* for whose pattern there is no table, in no order */
	struct match_table message_tables[MATCH_MESSAGE_TABLES];
	struct match_seed seed;
};

/*
 * Returns 0 or -ENOMEM. `sources` is how many member slots there are, `most` how many there can ever
 * be: room for those is only address space, so that a source's lists are where they are for good.
 */
int match_open(struct match_queue *queue, uint32_t sources, uint32_t most);
/* From here on there are sources below `sources`, which is at most what match_open() was told. */
void match_add_sources(struct match_queue *queue, uint32_t sources);
void match_close(struct match_queue *queue);

/* ---- out of line: with wildcards, while there are tables, or to make them ---- */

/* receives.c */
void match_post_in_table(struct match_queue *queue, struct match_receive *receive);
void match_withdraw_from_table(struct match_queue *queue, struct match_receive *receive);
struct match_receive *match_arrival_slow(struct match_queue *queue, uint32_t source, uint64_t tag);
struct match_receive *match_arrival_long(struct match_queue *queue, uint32_t source, uint64_t tag);

/* messages.c */
struct match_message *match_waiting_slow(struct match_queue *queue, uint32_t source, uint64_t tag,
					 uint64_t ignore);
void match_keep_in_tables(struct match_queue *queue, struct match_message *message);
void match_take_from_tables(struct match_queue *queue, struct match_message *message);

/* ---- the interface ---- */

static inline void match_post(struct match_queue *queue, struct match_receive *receive)
{
	receive->sequence = queue->sequence++;
	queue->posted++;
	if (__builtin_expect(queue->receives_in_tables, 0)) {
		match_post_in_table(queue, receive);
		return;
	}
	match_append(receive->key.source == MATCH_ANY_SOURCE ? &queue->any_source
							     : &queue->receives[receive->key.source],
		     &receive->node.same);
}

static inline void match_withdraw(struct match_queue *queue, struct match_receive *receive)
{
	queue->posted--;
	if (__builtin_expect(queue->receives_in_tables, 0))
		match_withdraw_from_table(queue, receive);
	else
		match_unlink(&receive->node.same);
}

static inline void match_keep(struct match_queue *queue, struct match_message *message)
{
	match_append(&queue->messages[message->key.source], &message->by_source);
	match_append(&queue->arrivals, &message->by_arrival);
	if (__builtin_expect(queue->messages_in_tables, 0))
		match_keep_in_tables(queue, message);
}

static inline void match_take(struct match_queue *queue, struct match_message *message)
{
	match_unlink(&message->by_source);
	match_unlink(&message->by_arrival);
	if (__builtin_expect(queue->messages_in_tables, 0))
		match_take_from_tables(queue, message);
}

static inline struct match_message *match_from_arrival(struct match_link *link)
{
	return (struct match_message *)(void *)((char *)link - offsetof(struct match_message, by_arrival));
}

static inline struct match_message *match_from_source(struct match_link *link)
{
	return (struct match_message *)(void *)((char *)link - offsetof(struct match_message, by_source));
}

static inline struct match_receive *match_from_link(struct match_link *link)
{
	return (struct match_receive *)(void *)((char *)link - offsetof(struct match_receive, node.same));
}

/*
 * The posted receive that a message from `source` with `tag` goes to, or NULL. It stays
 * posted: a buffer for several messages takes more than one.
 */
static inline struct match_receive *match_arrival(struct match_queue *queue, uint32_t source, uint64_t tag)
{
	struct match_link *head = &queue->receives[source];
	uint32_t steps = 0;

	if (__builtin_expect(!match_is_empty(&queue->any_source), 0))
		return match_arrival_slow(queue, source, tag);
	for (struct match_link *link = head->next; link != head; link = link->next) {
		struct match_receive *receive = match_from_link(link);
		MATCH_STEP();
		if (((receive->key.tag ^ tag) & ~receive->ignore) == 0)
			return receive;
		if (__builtin_expect(++steps == MATCH_STEPS_MAX, 0))
			return match_arrival_long(queue, source, tag);
	}
	return NULL;
}

/* The earliest waiting message that a receive for (source, tag, ignore) takes, or NULL. */
static inline struct match_message *match_waiting(struct match_queue *queue, uint32_t source, uint64_t tag,
						  uint64_t ignore)
{
	if (match_is_empty(&queue->arrivals))
		return NULL;
	return match_waiting_slow(queue, source, tag, ignore);
}

/*
 * Walk all posted receives, in no particular order: `previous` NULL for the first. None may be
 * withdrawn before the walk is at its end.
 */
struct match_receive *match_each_receive(struct match_queue *queue, struct match_receive *previous);

/*
 * Withdraw all receives from `source` alone, into `list`, in no particular order:
 * match_from_link() says which a link is.
 */
void match_withdraw_source(struct match_queue *queue, uint32_t source, struct match_link *list);

#endif
