/* SPDX-License-Identifier: BSD-3-Clause */
/* match.c - opens and closes queues. */
#include "match/match.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

void match_add_sources(struct match_queue *queue, uint32_t sources)
{
	for (; queue->sources < sources; queue->sources++) {
		match_list_open(&queue->receives[queue->sources]);
		match_list_open(&queue->messages[queue->sources]);
	}
}

/* Reserves address space for lists, which never move. Only used pages take memory. */
static struct match_link *reserve(uint32_t count)
{
	void *room = mmap(NULL, count * sizeof(struct match_link), PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return room == MAP_FAILED ? NULL : room;
}

static void give_back(struct match_link *room, uint32_t count)
{
	if (room != NULL)
		(void)munmap(room, count * sizeof(*room));
}

int match_open(struct match_queue *queue, uint32_t sources, uint32_t most)
{
	*queue = (struct match_queue){.most = most};
	queue->receives = reserve(most);
	queue->messages = reserve(most);
	if (queue->receives == NULL || queue->messages == NULL) {
		match_close(queue);
		return -ENOMEM;
	}
	match_seed_open(&queue->seed);
	match_list_open(&queue->any_source);
	match_list_open(&queue->arrivals);
	match_list_open(&queue->receives_apart);
	match_add_sources(queue, sources);
	return 0;
}

void match_close(struct match_queue *queue)
{
	for (uint32_t i = 0; i < MATCH_RECEIVE_TABLES; i++)
		match_table_close(&queue->receive_tables[i]);
	for (uint32_t i = 0; i < MATCH_MESSAGE_TABLES; i++)
		match_table_close(&queue->message_tables[i]);
	give_back(queue->receives, queue->most);
	give_back(queue->messages, queue->most);
	queue->receives = NULL;
	queue->messages = NULL;
}
