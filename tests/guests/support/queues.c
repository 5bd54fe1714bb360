/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * queues.c - a preloaded library that reports, for each completion queue of verbs, whether its device
 * announces completions by events. ibv_modify_cq() moderates only such queues.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As in libibverbs: the channel receives the events, NULL for none. */
typedef void *create_function(void *context, int entries, void *queue_context, void *channel, int vector);

create_function ibv_create_cq;

/* RTLD_NEXT does not find the caller's libibverbs, because libfabric loads the users of it separately. */
static create_function *find_next(void)
{
	create_function *next = NULL;
	void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
	void *symbol = library != NULL ? dlvsym(library, "ibv_create_cq", "IBVERBS_1.1") : NULL;

	memcpy(&next, &symbol, sizeof(next));
	return next;
}

void *ibv_create_cq(void *context, int entries, void *queue_context, void *channel, int vector)
{
	create_function *next = find_next();

	if (next == NULL)
		abort();
	(void)fprintf(stderr, "a queue of verbs %s events\n", channel != NULL ? "with" : "without");
	return next(context, entries, queue_context, channel, vector);
}
