/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * messages.c - searches unexpected messages.
 *
 * All messages stay in the lists, and are also in the table of each pattern that made a long search. So
 * adding or removing a message costs one step for each table, at most MATCH_MESSAGE_TABLES. A waiting message
 * enters each table once, because a table lasts until few messages are left.
 */
#include "match/match.h"

#define KEY_OFFSET(table) \
	((ptrdiff_t)offsetof(struct match_message, key) - (ptrdiff_t)offsetof(struct match_message, nodes) - \
	 (ptrdiff_t)((table) * sizeof(struct match_node)))

static struct match_message *from_node(struct match_node *node, uint32_t table)
{
	return node == NULL ? NULL
			    : (struct match_message *)(void *)((char *)node -
							       offsetof(struct match_message, nodes) -
							       table * sizeof(struct match_node));
}

/* The index of the pattern's table, or MATCH_MESSAGE_TABLES if there is none. */
static uint32_t find_table(const struct match_queue *queue, bool any_source, uint64_t ignore)
{
	for (uint32_t i = 0; i < MATCH_MESSAGE_TABLES; i++) {
		const struct match_table *table = &queue->message_tables[i];
		if (table->buckets != NULL && table->ignore == ignore && table->any_source == any_source)
			return i;
	}
	return MATCH_MESSAGE_TABLES;
}

/* Creates a table that contains all waiting messages. Returns its index, or MATCH_MESSAGE_TABLES. */
static uint32_t make_table(struct match_queue *queue, bool any_source, uint64_t ignore)
{
	for (uint32_t i = 0; i < MATCH_MESSAGE_TABLES; i++) {
		struct match_table *table = &queue->message_tables[i];
		if (table->buckets != NULL)
			continue;
		if (!match_table_open(table, ignore, any_source, KEY_OFFSET(i), &queue->seed))
			break;
		for (struct match_link *link = queue->arrivals.next; link != &queue->arrivals;
		     link = link->next) {
			MATCH_STEP();
			match_table_add(table, &match_from_arrival(link)->nodes[i]);
		}
		queue->messages_in_tables = true;
		return i;
	}
	return MATCH_MESSAGE_TABLES;
}

void match_keep_in_tables(struct match_queue *queue, struct match_message *message)
{
	for (uint32_t i = 0; i < MATCH_MESSAGE_TABLES; i++)
		if (queue->message_tables[i].buckets != NULL)
			match_table_add(&queue->message_tables[i], &message->nodes[i]);
}

void match_take_from_tables(struct match_queue *queue, struct match_message *message)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < MATCH_MESSAGE_TABLES; i++) {
		if (queue->message_tables[i].buckets == NULL)
			continue;
		match_table_remove(&queue->message_tables[i], &message->nodes[i]);
		left = queue->message_tables[i].count; /* every table contains all messages */
	}
	if (left > MATCH_FEW)
		return;
	for (uint32_t i = 0; i < MATCH_MESSAGE_TABLES; i++)
		match_table_close(&queue->message_tables[i]);
	queue->messages_in_tables = false;
}

struct match_message *match_waiting_slow(struct match_queue *queue, uint32_t source, uint64_t tag,
					 uint64_t ignore)
{
	bool any = source == MATCH_ANY_SOURCE;
	struct match_link *head = any ? &queue->arrivals : &queue->messages[source];
	const struct match_key key = {.tag = tag, .source = source};
	uint32_t table = MATCH_MESSAGE_TABLES;
	uint32_t steps = 0;

	if (queue->messages_in_tables)
		table = find_table(queue, any, ignore);
	for (struct match_link *link = head->next; table == MATCH_MESSAGE_TABLES && link != head;
	     link = link->next) {
		struct match_message *message = any ? match_from_arrival(link) : match_from_source(link);
		MATCH_STEP();
		if (((message->key.tag ^ tag) & ~ignore) == 0)
			return message;
		if (++steps == MATCH_STEPS_MAX)
			table = make_table(queue, any, ignore);
	}
	if (table == MATCH_MESSAGE_TABLES)
		return NULL;
	return from_node(match_table_find(&queue->message_tables[table], key), table);
}
