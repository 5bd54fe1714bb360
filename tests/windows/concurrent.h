/* SPDX-License-Identifier: BSD-3-Clause */
/* concurrent.h - operations of all ranks on the same elements, at once. */
#ifndef WINDOWS_CONCURRENT_H
#define WINDOWS_CONCURRENT_H

/* Accumulates of all ranks in each way, whose sums must be exact. `threads` origins in each rank. */
void concurrent_sums(int count, int threads);
/* Locks of the program's own, by compare-and-swap and by fetch-and-op, and those of MPI. */
void concurrent_locks(int count);
/* A chain of ranks that wait for each other's stores, by MPI_Win_sync(), flushes, posts and fences. */
void concurrent_order(int count);
/* Puts and gets of several MiB, in all directions at once. */
void large_moves(int count);
/* Windows that are made, used, and freed, of changing lengths. */
void windows_churn(int count);
/*
 * Holds two windows and memory of MPI_Alloc_mem() until the file `release` exists, and goes on until `end`
 * does.
 */
void windows_hold(const char *release, const char *end);
/* Says whether a rank that makes no call of MPI sees a put: "direct" or "by messages". */
void say_direct(void);

#endif
