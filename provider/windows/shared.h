/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shared.h - shared windows (MPI_Win_allocate_shared) over all members of a region, and the communicators for
 * them.
 *
 * Only with VICINAL_WINDOWS=on. A communicator of ranks in isolated nodes cannot go back to the MPI library's
 * shared memory, so a window that is too long for a heap is an error. A program that did not ask for such
 * communicators gets the smaller ones of the MPI library.
 */
#ifndef VICINAL_WINDOWS_SHARED_H
#define VICINAL_WINDOWS_SHARED_H

#include "windows/window.h"

/*
 * Replaces MPI_Comm_split_type(): for MPI_COMM_TYPE_SHARED, members of one region get one communicator.
 * `type` is the MPI library's, and `made` gets a handle.
 */
int shared_split(handle comm, int type, int key, handle info, void *made);

/* MPI_Comm_split_type() of the MPI library, and its MPI_COMM_TYPE_SHARED. */
int shared_split_behind(handle comm, int type, int key, handle info, void *made);
int shared_type(void);

/* Replaces MPI_Win_allocate_shared(). `large` selects the form with large counts. */
int shared_allocate(intptr_t bytes, intptr_t unit, bool large, handle info, handle comm, void *base,
		    void *win);

/*
 * Replaces MPI_Win_shared_query(), for all windows in the region. `unit` has the type of the form: int, or
 * MPI_Aint if it is `large`.
 */
int shared_query(handle win, int rank, intptr_t *bytes, void *unit, bool large, void *base);

/*
 * The groups of MPI_COMM_TYPE_SHARED. `regions` has the region of each rank by its id, zeros for a rank in
 * none, and `leaders` the number of the rank's group in the MPI library, or -1 for a rank that wants no
 * group. Stores the number of each rank's group, or -1. Returns false if all groups are the MPI library's:
 * then no region joins two of them. A region's members get one group unless the MPI library has a group of
 * all of them already.
 */
bool shared_groups(int size, const uint64_t (*regions)[2], const int *leaders, int *groups);

#endif
