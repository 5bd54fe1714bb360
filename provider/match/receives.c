/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * receives.c - searches posted receives: in lists while there are few, else in tables.
 *
 * All receives move together, so that a receive is either in a list or in a table, never in both. So removing
 * one of ten thousand receives touches no other receive.
 */
#include "match/match.h"

/* The table index of a receive whose pattern has no table. */
#define APART MATCH_RECEIVE_TABLES

#define KEY_OFFSET \
	((ptrdiff_t)offsetof(struct match_receive, key) - (ptrdiff_t)offsetof(struct match_receive, node))

static struct match_receive *from_node(struct match_node *node)
{
	return (struct match_receive *)(void *)((char *)node - offsetof(struct match_receive, node));
}

static struct match_link *list_of(struct match_queue *queue, const struct match_receive *receive)
{
	return receive->key.source == MATCH_ANY_SOURCE ? &queue->any_source
						       : &queue->receives[receive->key.source];
}

/* ---- lists and tables ---- */

/* The index of the pattern's table. Assigns an unused table if necessary. Returns APART if there is none. */
static uint32_t table_of(struct match_queue *queue, bool any_source, uint64_t ignore)
{
	uint32_t empty = APART;

	for (uint32_t i = 0; i < queue->receive_patterns; i++) {
		const struct match_table *table = &queue->receive_tables[i];
		if (table->ignore == ignore && table->any_source == any_source && table->buckets != NULL)
			return i;
		if (table->count == 0)
			empty = i;
	}
	if (queue->receive_patterns < MATCH_RECEIVE_TABLES)
		empty = queue->receive_patterns++;
	else if (empty == APART)
		return APART;
	struct match_table *table = &queue->receive_tables[empty];
	match_table_close(table);
	return match_table_open(table, ignore, any_source, KEY_OFFSET, &queue->seed) ? empty : APART;
}

void match_post_in_table(struct match_queue *queue, struct match_receive *receive)
{
	receive->table = table_of(queue, receive->key.source == MATCH_ANY_SOURCE, receive->ignore);
	if (receive->table == APART)
		match_append(&queue->receives_apart, &receive->node.same);
	else
		match_table_add(&queue->receive_tables[receive->table], &receive->node);
	queue->receives_count++;
}

static void enter_tables(struct match_queue *queue)
{
	queue->receives_count = 0;
	queue->receive_patterns = 0;
	for (uint32_t source = 0; source <= queue->sources; source++) {
		struct match_link *head =
			source == queue->sources ? &queue->any_source : &queue->receives[source];
		while (!match_is_empty(head)) {
			struct match_receive *receive = match_from_link(head->next);
			MATCH_STEP();
			match_unlink(&receive->node.same);
			match_post_in_table(queue, receive);
		}
	}
	/*
	 * match_arrival() does not see a NULL link as an empty list, and takes the slow path to the tables
	 * without another test.
	 */
	queue->any_source.next = NULL;
	queue->receives_in_tables = true;
}

/* Few receives are left: moves them to the lists, in the order of posting. */
static void leave_tables(struct match_queue *queue)
{
	struct match_receive *left[MATCH_FEW];
	uint32_t count = 0;

	for (struct match_receive *receive = NULL; (receive = match_each_receive(queue, receive)) != NULL;) {
		uint32_t index = count++;
		for (; index > 0 && left[index - 1]->sequence > receive->sequence; index--)
			left[index] = left[index - 1];
		left[index] = receive;
	}
	for (uint32_t i = 0; i < queue->receive_patterns; i++)
		match_table_close(&queue->receive_tables[i]);
	match_list_open(&queue->receives_apart);
	match_list_open(&queue->any_source);
	queue->receives_in_tables = false;
	for (uint32_t i = 0; i < count; i++)
		match_append(list_of(queue, left[i]), &left[i]->node.same);
}

void match_withdraw_from_table(struct match_queue *queue, struct match_receive *receive)
{
	if (receive->table == APART)
		match_unlink(&receive->node.same);
	else
		match_table_remove(&queue->receive_tables[receive->table], &receive->node);
	if (--queue->receives_count <= MATCH_FEW)
		leave_tables(queue);
}

/* ---- searching ---- */

static struct match_receive *earlier(struct match_receive *one, struct match_receive *other)
{
	if (one == NULL || (other != NULL && other->sequence < one->sequence))
		return other;
	return one;
}

static struct match_receive *find_in_tables(struct match_queue *queue, uint32_t source, uint64_t tag)
{
	struct match_receive *first = NULL;
	const struct match_key key = {.tag = tag, .source = source};

	for (uint32_t i = 0; i < queue->receive_patterns; i++) {
		if (queue->receive_tables[i].count == 0)
			continue;
		MATCH_STEP();
		struct match_node *node = match_table_find(&queue->receive_tables[i], key);
		if (node != NULL)
			first = earlier(first, from_node(node));
	}
	for (struct match_link *link = queue->receives_apart.next; link != &queue->receives_apart;
	     link = link->next) {
		struct match_receive *receive = match_from_link(link);
		MATCH_STEP();
		if ((receive->key.source == source || receive->key.source == MATCH_ANY_SOURCE) &&
		    ((receive->key.tag ^ tag) & ~receive->ignore) == 0)
			first = earlier(first, receive);
	}
	return first;
}

/* The first receive that matches. `steps` counts visited receives. */
static struct match_receive *first_in(const struct match_link *head, uint64_t tag, uint32_t *steps)
{
	for (struct match_link *link = head->next; link != head && *steps < MATCH_STEPS_MAX;
	     link = link->next, ++*steps) {
		struct match_receive *receive = match_from_link(link);
		MATCH_STEP();
		if (((receive->key.tag ^ tag) & ~receive->ignore) == 0)
			return receive;
	}
	return NULL;
}

struct match_receive *match_arrival_long(struct match_queue *queue, uint32_t source, uint64_t tag)
{
	enter_tables(queue);
	return find_in_tables(queue, source, tag);
}

struct match_receive *match_arrival_slow(struct match_queue *queue, uint32_t source, uint64_t tag)
{
	uint32_t steps = 0;

	if (queue->receives_in_tables)
		return find_in_tables(queue, source, tag);
	struct match_receive *directed = first_in(&queue->receives[source], tag, &steps);
	struct match_receive *any = first_in(&queue->any_source, tag, &steps);
	return steps < MATCH_STEPS_MAX ? earlier(directed, any) : match_arrival_long(queue, source, tag);
}

/* ---- walks ---- */

static struct match_receive *each_in_tables(struct match_queue *queue, struct match_receive *previous)
{
	struct match_node *node = previous == NULL ? NULL : &previous->node;
	struct match_link *apart = queue->receives_apart.next;

	for (uint32_t i = previous == NULL ? 0 : previous->table; i < queue->receive_patterns;
	     i++, node = NULL) {
		if (queue->receive_tables[i].buckets == NULL)
			continue;
		node = match_table_next(&queue->receive_tables[i], node);
		if (node != NULL)
			return from_node(node);
	}
	if (previous != NULL && previous->table == APART)
		apart = previous->node.same.next;
	return apart == &queue->receives_apart ? NULL : match_from_link(apart);
}

struct match_receive *match_each_receive(struct match_queue *queue, struct match_receive *previous)
{
	/* Index `sources` stands for the list of any source, which comes last. */
	uint32_t source = 0;
	struct match_link *link = NULL;

	if (queue->receives_in_tables)
		return each_in_tables(queue, previous);
	if (previous != NULL) {
		source = previous->key.source == MATCH_ANY_SOURCE ? queue->sources : previous->key.source;
		link = previous->node.same.next;
	}
	for (; source <= queue->sources; source++, link = NULL) {
		struct match_link *head =
			source == queue->sources ? &queue->any_source : &queue->receives[source];
		if (link == NULL)
			link = head->next;
		if (link != head)
			return match_from_link(link);
	}
	return NULL;
}

void match_withdraw_source(struct match_queue *queue, uint32_t source, struct match_link *list)
{
	if (!queue->receives_in_tables) {
		struct match_link *head = &queue->receives[source];
		while (!match_is_empty(head)) {
			struct match_link *link = head->next;
			match_unlink(link);
			match_append(list, link);
			queue->posted--;
		}
		return;
	}
	for (uint32_t i = 0; i < queue->receive_patterns; i++) {
		struct match_table *table = &queue->receive_tables[i];
		uint32_t before = table->count;
		if (before == 0 || table->any_source)
			continue;
		match_table_move(table, source, list);
		queue->receives_count -= before - table->count;
		queue->posted -= before - table->count;
	}
	for (struct match_link *link = queue->receives_apart.next; link != &queue->receives_apart;) {
		struct match_receive *receive = match_from_link(link);
		link = link->next;
		if (receive->key.source != source)
			continue;
		match_unlink(&receive->node.same);
		match_append(list, &receive->node.same);
		queue->receives_count--;
		queue->posted--;
	}
	if (queue->receives_count <= MATCH_FEW)
		leave_tables(queue);
}
