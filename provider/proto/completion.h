/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * completion.h - the private queue between operations that end and the application that reads their
 * completions.
 */
#ifndef VICINAL_PROTO_COMPLETION_H
#define VICINAL_PROTO_COMPLETION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The first six members are those of struct fi_cq_tagged_entry, in the same order. */
struct completion {
	void *context;
	uint64_t flags;
	size_t length;
	void *buffer;
	uint64_t data;
	uint64_t tag;
	uint64_t source;    /* the sender, as epoch << 32 | slot, or COMPLETION_NO_SOURCE */
	size_t overflow;    /* bytes that did not fit, with FI_ETRUNC */
	const char *reason; /* a static text for users */
	int error;          /* positive errno, or 0 */
	uint32_t vector;    /* the address vector that names `source`, as in struct messenger */
};

#define COMPLETION_NO_SOURCE UINT64_MAX

struct completion_queue {
	struct completion *entries;
	uint32_t mask;
	uint32_t head; /* next to be read */
	uint32_t tail; /* next to be written */
	uint64_t lost; /* completions that were dropped without memory */
};

/* The queue initially has room for at least `size` entries. Returns 0 or -ENOMEM. */
int completion_open(struct completion_queue *queue, size_t size);
void completion_close(struct completion_queue *queue);

/* Doubles a full queue. Returns false without memory. */
bool completion_grow(struct completion_queue *queue);

static inline bool completion_is_empty(const struct completion_queue *queue)
{
	return queue->head == queue->tail;
}

/* Adds an entry, which the caller fills in. Returns NULL without memory. */
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

struct completion_counter {
	uint64_t value;
	uint64_t errors;
};

#endif
