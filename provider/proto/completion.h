/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * completion.h - the private queue between operations that end and the application that
 * asks for them.
 */
#ifndef VICINAL_PROTO_COMPLETION_H
#define VICINAL_PROTO_COMPLETION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The first six members are those of struct fi_cq_tagged_entry, in its order. */
struct completion {
	void *context;
	uint64_t flags;
	size_t length;
	void *buffer;
	uint64_t data;
	uint64_t tag;
	uint64_t source;    /* the sender, as epoch << 32 | slot, or COMPLETION_NO_SOURCE */
	size_t overflow;    /* bytes that did not fit, with FI_ETRUNC */
	const char *reason; /* a static text, for people */
	int error;          /* positive errno, or 0 */
	uint32_t vector;    /* with a source: which address vector names it; as in struct messenger */
};

#define COMPLETION_NO_SOURCE UINT64_MAX

struct completion_queue {
	struct completion *entries;
	uint32_t mask;
	uint32_t head; /* the next to be read */
	uint32_t tail; /* the next to be written */
	uint64_t lost; /* no memory was left for so many */
};

/* Room for at least `size` at first. Returns 0 or -ENOMEM. */
int completion_open(struct completion_queue *queue, size_t size);
void completion_close(struct completion_queue *queue);

/* Out of line: the queue is full, double it. Returns false if no memory is left. */
bool completion_grow(struct completion_queue *queue);

static inline bool completion_is_empty(const struct completion_queue *queue)
{
	return queue->head == queue->tail;
}

/* The entry to fill in; it is in the queue at once. NULL if no memory is left. */
static inline struct completion *completion_add(struct completion_queue *queue)
{
	if (__builtin_expect(queue->tail - queue->head > queue->mask, 0) && !completion_grow(queue))
		return NULL;
	return &queue->entries[queue->tail++ & queue->mask];
}

static inline struct completion *completion_first(struct completion_queue *queue)
{
	return &queue->entries[queue->head & queue->mask];
}

/* What counters count. */
struct completion_counter {
	uint64_t value;
	uint64_t errors;
};

#endif
