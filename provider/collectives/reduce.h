/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * reduce.h - collectives that reduce.
 *
 * Each member that needs a result computes it from the data of all members, in the order of the ranks. So
 * results are the same on all ranks and in each run, and operations need not commute.
 */
#ifndef VICINAL_COLLECTIVES_REDUCE_H
#define VICINAL_COLLECTIVES_REDUCE_H

#include "collectives/movement.h"

struct operation {
	reduction *kernel; /* NULL: by MPI_Reduce_local() */
	handle type;
	handle op;
	int64_t size; /* bytes of an element without gaps */
};

struct operation operation_of(handle type, handle op);

/*
 * `from` and `to` are elements without gaps. They are the same, or do not overlap. `to` is NULL on ranks
 * without a result.
 */
enum outcome reduce_to_root(struct communicator *communicator, const struct operation *operation,
			    const unsigned char *from, unsigned char *to, int64_t count, int root);
enum outcome reduce_to_all(struct communicator *communicator, const struct operation *operation,
			   const unsigned char *from, unsigned char *to, int64_t count);
/* `total` elements of all ranks: no more than what is faster through the region? */
bool reduce_scatter_is_worth(const struct communicator *communicator, const struct operation *operation,
			     int64_t total);
/*
 * `counts` elements for each rank. `to` may be the beginning of `from`: no step overwrites elements that a
 * later one publishes, because a step takes the same number of elements from each block.
 */
enum outcome reduce_scatter(struct communicator *communicator, const struct operation *operation,
			    const unsigned char *from, unsigned char *to, const int64_t *counts);
/* Of the ranks up to this one; without this one's own data if `exclusive`. */
enum outcome reduce_scan(struct communicator *communicator, const struct operation *operation,
			 const unsigned char *from, unsigned char *to, int64_t count, bool exclusive);

#endif
