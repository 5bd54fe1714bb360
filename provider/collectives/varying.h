/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * varying.h - collectives that move blocks of different lengths.
 *
 * All members must decide alike whether a collective goes through the region. In an allgather, each member
 * knows all lengths. In a gather or scatter only the root knows them, and in an alltoall each member knows
 * those of its own blocks. So the members that know lengths publish a verdict beside their data, and all
 * members act on the same verdicts. Short data needs no other step.
 */
#ifndef VICINAL_COLLECTIVES_VARYING_H
#define VICINAL_COLLECTIVES_VARYING_H

#include "collectives/blocks.h"
#include "collectives/movement.h"

/*
 * A rank that receives less than it has room for keeps the rest of its buffer. If another rank sends more,
 * the collective is completed on all ranks, and fails on the rank that has too little room.
 */

/* `send` is NULL for MPI_IN_PLACE. */
enum outcome vary_allgather(struct communicator *communicator, const struct blocks *send,
			    const struct blocks *receive);
/* `send` is NULL if the root's block is in place; `receive` is of the root only. */
enum outcome vary_gather(struct communicator *communicator, const struct blocks *send,
			 const struct blocks *receive, int root);
/* `send` is of the root only; `receive` is NULL if the root's block is in place. */
enum outcome vary_scatter(struct communicator *communicator, const struct blocks *send,
			  const struct blocks *receive, int root);
/* `send` is NULL for MPI_IN_PLACE. */
enum outcome vary_alltoall(struct communicator *communicator, const struct blocks *send,
			   const struct blocks *receive);

#endif
