/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * counts.h - how many collectives and one-sided operations this process did through the region, for people.
 * The provider publishes the sums: see preload/region_source.h.
 */
#ifndef VICINAL_COLLECTIVES_COUNTS_H
#define VICINAL_COLLECTIVES_COUNTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum counted {
	COUNTED_COLLECTIVES,
	COUNTED_COLLECTIVE_BYTES, /* that this process wrote for others */
	COUNTED_ONE_SIDED,
	COUNTED_ONE_SIDED_BYTES, /* that this process read or wrote at targets */
	COUNTED_KINDS,
};

/*
 * Each thread has counts of its own, so that counting needs no read-modify-write. Another thread reads them
 * at any time.
 */
struct counts {
	atomic_uint_fast64_t values[COUNTED_KINDS];
	bool taken; /* by a thread that lives; under the mutex of counts.c */
	struct counts *next;
};

extern __thread __attribute__((tls_model("initial-exec"))) struct counts *counts_of_thread;

/* Gives this thread counts, or NULL if no memory is left. */
struct counts *counts_begin(void);

static inline void count_more(enum counted kind, uint64_t more)
{
	struct counts *mine = counts_of_thread;

	if (__builtin_expect(mine == NULL, 0) && (mine = counts_begin()) == NULL)
		return;
	atomic_store_explicit(&mine->values[kind],
			      atomic_load_explicit(&mine->values[kind], memory_order_relaxed) + more,
			      memory_order_relaxed);
}

#endif
