/* SPDX-License-Identifier: BSD-3-Clause */
/* completion.c - completion queues that grow instead of losing a completion. */
#include "proto/completion.h"

#include <errno.h>
#include <stdlib.h>

#define COMPLETION_DEFAULT 1024U

int completion_open(struct completion_queue *queue, size_t size)
{
	uint32_t capacity = COMPLETION_DEFAULT;

	while (capacity < size && capacity < (1U << 30))
		capacity *= 2;
	*queue = (struct completion_queue){.mask = capacity - 1};
	queue->entries = calloc(capacity, sizeof(*queue->entries));
	return queue->entries == NULL ? -ENOMEM : 0;
}

void completion_close(struct completion_queue *queue)
{
	free(queue->entries);
	queue->entries = NULL;
}

bool completion_grow(struct completion_queue *queue)
{
	uint32_t capacity = (queue->mask + 1) * 2;
	struct completion *entries = calloc(capacity, sizeof(*entries));

	if (entries == NULL || capacity == 0) {
		free(entries);
		queue->lost++;
		return false;
	}
	uint32_t count = queue->tail - queue->head;
	for (uint32_t i = 0; i < count; i++)
		entries[i] = queue->entries[(queue->head + i) & queue->mask];
	free(queue->entries);
	queue->entries = entries;
	queue->mask = capacity - 1;
	queue->head = 0;
	queue->tail = count;
	return true;
}
