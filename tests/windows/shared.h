/* SPDX-License-Identifier: BSD-3-Clause */
/* shared.h - shared windows over the communicators of MPI_COMM_TYPE_SHARED. */
#ifndef WINDOWS_SHARED_H
#define WINDOWS_SHARED_H

/*
 * Makes and frees `count` windows, and checks queries, attributes, loads and stores, and operations in epochs
 * of each kind. Rank 0 prints the lengths of the groups.
 */
void shared_run(int count);
/* `count` steps of a stencil, whose ranks load the halo from their neighbour's memory where they can. */
void shared_halo(int count);
/* Windows that cannot be: longer than a heap, and over ranks that share no memory. Prints the errors. */
void shared_refused(void);

#endif
