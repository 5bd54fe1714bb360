/* SPDX-License-Identifier: BSD-3-Clause */
/* match.c - opening and closing queues. */
#include "match/match.h"

#include <errno.h>
#include <stdlib.h>

int match_open(struct match_queue *queue, uint32_t sources)
{
	*queue = (struct match_queue){
		.sources = sources,
		.receives = calloc(sources, sizeof(*queue->receives)),
		.messages = calloc(sources, sizeof(*queue->messages)),
	};
	if (queue->receives == NULL || queue->messages == NULL) {
		match_close(queue);
		return -ENOMEM;
	}
	match_seed_open(&queue->seed);
	match_list_open(&queue->any_source);
	match_list_open(&queue->arrivals);
	match_list_open(&queue->receives_apart);
	for (uint32_t source = 0; source < sources; source++) {
		match_list_open(&queue->receives[source]);
		match_list_open(&queue->messages[source]);
	}
	return 0;
}

void match_close(struct match_queue *queue)
{
	for (uint32_t i = 0; i < MATCH_RECEIVE_TABLES; i++)
		match_table_close(&queue->receive_tables[i]);
	for (uint32_t i = 0; i < MATCH_MESSAGE_TABLES; i++)
		match_table_close(&queue->message_tables[i]);
	free(queue->receives);
	free(queue->messages);
	queue->receives = NULL;
	queue->messages = NULL;
}
