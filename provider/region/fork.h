/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fork.h - what a fork does to what all endpoints of a process share: no lock of it is held by a thread
 * that the child does not have, and the child is a process of its own.
 */
#ifndef VICINAL_REGION_FORK_H
#define VICINAL_REGION_FORK_H

/*
 * From here on forks are taken care of. Before any of those locks is taken, and before a thread that takes
 * them while it holds a lock of its own watches forks for that: its lock is then taken first at a fork
 * too, or two threads would wait for each other.
 */
void fork_watch(void);

#endif
