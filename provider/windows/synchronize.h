/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * synchronize.h - the calls that begin, complete, and end epochs.
 *
 * An operation of this library is complete when its stores are done, so only the order of loads and stores is
 * left to be kept. Locks and the matching of posts and starts are the MPI library's. It also completes what
 * was passed on to it.
 */
#ifndef VICINAL_WINDOWS_SYNCHRONIZE_H
#define VICINAL_WINDOWS_SYNCHRONIZE_H

#include <limits.h>

#include "windows/window.h"

/* No rank is this number, not even MPI_PROC_NULL. */
#define ALL_RANKS INT_MIN

/* All return the status of MPI. */
int synchronize_fence(struct window *window, int assertion);
/* `local`: only the origin's buffers must be complete. `rank` may be ALL_RANKS. */
int synchronize_flush(struct window *window, int rank, bool local);

/* An access epoch by locks or by MPI_Win_start() has begun, by the MPI library. */
void synchronize_begun(struct window *window);
/* It has ended. `rank` may be ALL_RANKS. */
void synchronize_ended(struct window *window, int rank);
/* An exposure epoch has begun or ended. */
void synchronize_exposed(struct window *window);
/* Orders the accesses before it and those after it. */
void synchronize_order(struct window *window);

#endif
