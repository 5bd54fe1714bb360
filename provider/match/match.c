/* SPDX-License-Identifier: BSD-3-Clause */
/* match.c - opening queues, and searching the messages that wait. */
#include "match/match.h"

#include <errno.h>
#include <stdlib.h>

static void list_open(struct match_link *head)
{
	head->next = head;
	head->previous = head;
}

int match_open(struct match_queue *queue, uint32_t sources)
{
	queue->sources = sources;
	queue->sequence = 0;
	queue->receives = calloc(sources, sizeof(*queue->receives));
	queue->messages = calloc(sources, sizeof(*queue->messages));
	if (queue->receives == NULL || queue->messages == NULL) {
		match_close(queue);
		return -ENOMEM;
	}
	list_open(&queue->any_source);
	list_open(&queue->arrivals);
	for (uint32_t source = 0; source < sources; source++) {
		list_open(&queue->receives[source]);
		list_open(&queue->messages[source]);
	}
	return 0;
}

void match_close(struct match_queue *queue)
{
	free(queue->receives);
	free(queue->messages);
	queue->receives = NULL;
	queue->messages = NULL;
}

struct match_message *match_waiting(struct match_queue *queue, uint32_t source, uint64_t tag, uint64_t ignore)
{
	bool any = source == MATCH_ANY_SOURCE;
	struct match_link *head = any ? &queue->arrivals : &queue->messages[source];

	for (struct match_link *link = head->next; link != head; link = link->next) {
		struct match_message *message = any ? match_from_arrival(link) : match_from_source(link);
		if (((message->tag ^ tag) & ~ignore) == 0)
			return message;
	}
	return NULL;
}

struct match_receive *match_each_receive(struct match_queue *queue, struct match_receive *previous)
{
	/* The list of any source comes last: source `sources` stands for it. */
	uint32_t source = 0;
	struct match_link *link = NULL;

	if (previous != NULL) {
		source = previous->source == MATCH_ANY_SOURCE ? queue->sources : previous->source;
		link = previous->link.next;
	}
	for (; source <= queue->sources; source++, link = NULL) {
		struct match_link *head =
			source == queue->sources ? &queue->any_source : &queue->receives[source];
		if (link == NULL)
			link = head->next;
		if (link != head)
			return (struct match_receive *)(void *)link;
	}
	return NULL;
}
