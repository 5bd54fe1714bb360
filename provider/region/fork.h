/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fork.h - what a fork does to the state that all endpoints of a process share. No thread that the
 * child lacks holds a lock of this state in the child, and the child counts as a separate process.
 */
#ifndef VICINAL_REGION_FORK_H
#define VICINAL_REGION_FORK_H

/*
 * Install the fork handlers. Call before any of those locks is taken, and before a caller that
 * takes them under its own lock installs a handler for that lock. The handlers before a fork run in
 * reverse order, so the caller's lock is then taken first at a fork as well. Otherwise two threads
 * could deadlock.
 */
void fork_watch(void);

#endif
