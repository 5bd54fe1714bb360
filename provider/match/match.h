/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * match.h - decides which receive takes which message, by tag and source, with wildcards, in order.
 *
 * Few entries are searched one by one. Posted receives are in two lists: receives for the message's source,
 * and receives for any source. The earlier match wins, by its sequence number. Unexpected messages are in two
 * lists each: their source's list, and the list of all messages.
 *
 * Many entries are found in tables (table.h). Programs search with few patterns: which bits of the tag count,
 * and whether the source counts. Each pattern has its own table, which a long search creates. A receive is in
 * its pattern's table only, and an arriving message searches the table of each pattern. An unexpected message
 * is in all tables, and a receive searches its own pattern's table. If few entries are left, they return to
 * the lists. Patterns without a table are searched one by one.
 *
 * Links and nodes are inside the structs of the layer above. Only list heads and tables are allocated here.
 * Without memory for tables, searches take longer and find the same entries.
 */
#ifndef VICINAL_MATCH_MATCH_H
#define VICINAL_MATCH_MATCH_H

#include "match/table.h"

#define MATCH_ANY_SOURCE UINT32_MAX

/*
 * A search of MATCH_STEPS_MAX steps creates tables. Measured: docs/decisions/0003. If only MATCH_FEW entries
 * are left in tables, they return to lists. The second number is much smaller, so that many messages share
 * the cost of a change.
 */
#define MATCH_STEPS_MAX 16U
#define MATCH_FEW 4U

/* MPI has two patterns of source and two of tag, and each library has one or two protocol bits in the tag. */
#define MATCH_RECEIVE_TABLES 8U
#define MATCH_MESSAGE_TABLES 4U

/* A posted receive. */
struct match_receive {
	struct match_node node; /* `same` links the lists while there are no tables */
	struct match_key key;   /* its source is a member slot or MATCH_ANY_SOURCE */
	uint64_t ignore;        /* bits of the tag that need not match */
	uint64_t sequence;
	uint32_t table; /* index of the table that contains it, while there are tables */
};

/* An unexpected message. */
struct match_message {
	struct match_link by_source;
	struct match_link by_arrival;
	struct match_key key;
	struct match_node nodes[MATCH_MESSAGE_TABLES]; /* one for each table in use */
};

struct match_queue {
	struct match_link any_source; /* receives; its `next` is NULL while receives are in tables */
	struct match_link arrivals;   /* all messages */
	struct match_link *receives;  /* by source */
	struct match_link *messages;  /* by source */
	uint64_t sequence;
	uint32_t posted;  /* receives in lists or tables */
	uint32_t most;    /* sources for which address space is reserved */
	uint32_t sources; /* present sources: match_add_sources() adds more */
	bool receives_in_tables;
	bool messages_in_tables;
	/* only while there are tables */
	uint32_t receives_count;
	uint32_t receive_patterns; /* tables from this index on are unused */
	struct match_table receive_tables[MATCH_RECEIVE_TABLES];
	struct match_link receives_apart; /* receives whose pattern has no table, unordered */
	struct match_table message_tables[MATCH_MESSAGE_TABLES];
	struct match_seed seed;
};

/*
 * Returns 0 or -ENOMEM. `sources` is the present number of member slots, `most` the largest possible one.
 * Lists of all possible slots take only address space, so that the lists never move.
 */
int match_open(struct match_queue *queue, uint32_t sources, uint32_t most);
/* Raises the number of sources to `sources`, which is at most the `most` of match_open(). */
void match_add_sources(struct match_queue *queue, uint32_t sources);
void match_close(struct match_queue *queue);

/* ---- slow paths: wildcards and tables ---- */

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
 * The posted receive that takes a message from `source` with `tag`, or NULL. The receive stays posted,
 * because a multi-receive buffer takes several messages.
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

/* The earliest unexpected message that a receive for (source, tag, ignore) takes, or NULL. */
static inline struct match_message *match_waiting(struct match_queue *queue, uint32_t source, uint64_t tag,
						  uint64_t ignore)
{
	if (match_is_empty(&queue->arrivals))
		return NULL;
	return match_waiting_slow(queue, source, tag, ignore);
}

/*
 * Walks all posted receives in no particular order. `previous` is NULL for the first. No receive may be
 * withdrawn until the walk ends.
 */
struct match_receive *match_each_receive(struct match_queue *queue, struct match_receive *previous);

/*
 * Withdraws the receives that are posted for `source` only, and moves them to `list` in no particular order.
 * match_from_link() converts a link to its receive.
 */
void match_withdraw_source(struct match_queue *queue, uint32_t source, struct match_link *list);

#endif
