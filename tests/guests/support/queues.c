/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * queues.c - to be preloaded: says of each completion queue that is made by verbs whether its device is to
 * tell of completions by events. Only those does ibv_modify_cq() have the device hold back.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As libibverbs has it: the channel is where events go, NULL for none. */
typedef void *create_function(void *context, int entries, void *queue_context, void *channel, int vector);

create_function ibv_create_cq;

/* Who calls us has libibverbs, but not where RTLD_NEXT would see it: libfabric loads its users by itself. */
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
