/* SPDX-License-Identifier: BSD-3-Clause */
/* fork.c - the fork handlers of the region layer. */
#include "region/fork.h"

#include <pthread.h>

#include "region/guard.h"
#include "region/heap.h"
#include "region/leave.h"
#include "region/member.h"
#include "region/process.h"

/* The locking order: region_leave() holds the first lock while it takes the other locks. */
static void before_fork(void)
{
	leave_lock();
	heaps_before_fork();
	process_offers_lock();
	guard_lock();
}

static void unlock_all(void)
{
	guard_unlock();
	process_offers_unlock();
	heaps_unlock();
	leave_unlock();
}

static void in_child(void)
{
	heaps_after_fork();
	member_forget_process();
	unlock_all();
}

static void watch(void)
{
	(void)pthread_atfork(before_fork, unlock_all, in_child);
}

void fork_watch(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, watch);
}
