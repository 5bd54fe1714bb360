/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * accumulate.h - accumulates by the processor's atomic instructions.
 *
 * MPI promises that accumulates of one datatype are atomic to each other, for each element. So whether they
 * are done here depends on nothing but the datatype and the address: elements of 1, 2, 4, or 8 bytes at a
 * multiple of their size.
 */
#ifndef VICINAL_WINDOWS_ACCUMULATE_H
#define VICINAL_WINDOWS_ACCUMULATE_H

#include "windows/access.h"

/* Where the data of an operation comes from, or goes to. */
struct buffer {
	void *address;
	int64_t count;
	handle type;
};

/* `result` is NULL if the target's former elements are not wanted. OUTCOME_PASS: nothing was done. */
enum outcome accumulate(const struct window *window, const struct buffer *origin, const struct buffer *result,
			const struct target *target, handle op);

enum outcome compare_and_swap(const struct window *window, const void *origin, const void *compare,
			      void *result, const struct target *target);

#endif
