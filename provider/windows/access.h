/* SPDX-License-Identifier: BSD-3-Clause */
/* access.h - put and get by loads and stores, and the memory that an operation accesses. */
#ifndef VICINAL_WINDOWS_ACCESS_H
#define VICINAL_WINDOWS_ACCESS_H

#include "collectives/movement.h"
#include "windows/window.h"

/* The elements at the target of an operation. */
struct target {
	int rank;
	intptr_t disp; /* in displacement units */
	int64_t count;
	handle type;
};

/*
 * The address of the first element. NULL if an element lies outside the target's window, or there is no such
 * target, or no access epoch is open: then the MPI library reports the error.
 */
unsigned char *target_address(const struct window *window, const struct target *target);

/* The same for elements without gaps, `bytes` bytes together. */
unsigned char *target_bytes(const struct window *window, const struct target *target, int64_t bytes);

/* OUTCOME_PASS: nothing was done. */
enum outcome access_put(const struct window *window, const void *origin, int64_t count, handle type,
			const struct target *target);
enum outcome access_get(const struct window *window, void *origin, int64_t count, handle type,
			const struct target *target);

#endif
