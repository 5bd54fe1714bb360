/* SPDX-License-Identifier: BSD-3-Clause */
/* counts.c - see counts.h. */
#include "collectives/counts.h"

#include <pthread.h>
#include <stdlib.h>

#include "preload/region_source.h"

__thread __attribute__((tls_model("initial-exec"))) struct counts *counts_of_thread;

/* No function of the MPI library is called under the mutex. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* Under the mutex. No counts are ever freed: those of a thread that ended are another thread's later. */
static struct counts *all;
static pthread_key_t key;
static bool has_key;

/* The thread ends. */
static void leave(void *mine)
{
	(void)pthread_mutex_lock(&mutex);
	((struct counts *)mine)->taken = false;
	(void)pthread_mutex_unlock(&mutex);
	counts_of_thread = NULL;
}

struct counts *counts_begin(void)
{
	(void)pthread_mutex_lock(&mutex);
	struct counts *mine = all;
	while (mine != NULL && mine->taken)
		mine = mine->next;
	if (mine == NULL && (mine = calloc(1, sizeof(*mine))) != NULL) {
		mine->next = all;
		all = mine;
	}
	if (mine != NULL) {
		has_key = has_key || pthread_key_create(&key, leave) == 0;
		/* Without a destructor, no other thread gets these counts. */
		if (has_key)
			(void)pthread_setspecific(key, mine);
		mine->taken = true;
	}
	(void)pthread_mutex_unlock(&mutex);
	counts_of_thread = mine;
	return mine;
}

#pragma GCC visibility push(default)
region_counts_function vicinal_region_counts;

void vicinal_region_counts(struct region_counts *counts)
{
	uint64_t sums[COUNTED_KINDS] = {0};

	(void)pthread_mutex_lock(&mutex);
	for (struct counts *each = all; each != NULL; each = each->next)
		for (int kind = 0; kind < COUNTED_KINDS; kind++)
			sums[kind] += atomic_load_explicit(&each->values[kind], memory_order_relaxed);
	(void)pthread_mutex_unlock(&mutex);
	*counts = (struct region_counts){
		.collectives = sums[COUNTED_COLLECTIVES],
		.collective_bytes = sums[COUNTED_COLLECTIVE_BYTES],
		.one_sided = sums[COUNTED_ONE_SIDED],
		.one_sided_bytes = sums[COUNTED_ONE_SIDED_BYTES],
	};
}
#pragma GCC visibility pop
