/* SPDX-License-Identifier: BSD-3-Clause */
/* sleep.c - the system calls for sleeping and waking. */
#include "region/sleep.h"

#include <errno.h>
#include <limits.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "region/member.h"

/* The numbers are the same on all architectures. Older headers lack some of them. */
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#define FUTEX_WORD_32 2U

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool barriers;
static bool waits_on_many;

/* A container's seccomp filter may refuse either call, with any error, so try each call once. */
static void ask_kernel(void)
{
	barriers = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0 &&
		   syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0;
	/* The word differs from the expected value: a kernel that has the call returns EAGAIN. */
	atomic_uint word = 0;
	struct futex_waitv waiter = {
		.val = 1, .uaddr = (uintptr_t)&word, .flags = FUTEX_WORD_32 | FUTEX_PRIVATE_FLAG};
	waits_on_many = syscall(SYS_futex_waitv, &waiter, 1, 0, NULL, CLOCK_MONOTONIC) < 0 && errno == EAGAIN;
}

bool sleep_is_ordered(void)
{
	(void)pthread_once(&once, ask_kernel);
	return barriers;
}

bool sleep_waits_on_many(void)
{
	(void)pthread_once(&once, ask_kernel);
	return waits_on_many;
}

bool sleep_order_senders(void)
{
	return sleep_is_ordered() && syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0;
}

void sleep_settle(void)
{
	uint64_t until = monotonic_now() + SLEEP_SETTLE_NANOSECONDS;

	while (monotonic_now() < until)
		;
}

static void add(struct sleep_watch *watch, uintptr_t address, uint32_t seen, uint32_t flags)
{
	if (watch->count == SLEEP_WORDS_MAX) {
		watch->missing++;
		return;
	}
	watch->words[watch->count++] =
		(struct futex_waitv){.val = seen, .uaddr = address, .flags = FUTEX_WORD_32 | flags};
}

void sleep_on_shared(struct sleep_watch *watch, const shared_u32 *word, uint32_t seen)
{
	add(watch, (uintptr_t)word, seen, 0);
}

void sleep_on_private(struct sleep_watch *watch, const atomic_uint *word, uint32_t seen)
{
	add(watch, (uintptr_t)word, seen, FUTEX_PRIVATE_FLAG);
}

static struct timespec time_of(uint64_t nanoseconds)
{
	return (struct timespec){.tv_sec = (time_t)(nanoseconds / 1000000000U),
				 .tv_nsec = (long)(nanoseconds % 1000000000U)};
}

/* There is no futex to wait on, or the kernel no longer permits the call. */
static enum sleep_end sleep_unwatched(uint64_t deadline, uint64_t most)
{
	uint64_t time = monotonic_now();
	struct timespec pause = time_of(deadline > time && deadline - time < most ? deadline - time : most);

	if (time < deadline)
		(void)nanosleep(&pause, NULL);
	return SLEEP_RUNG;
}

enum sleep_end sleep_until(const struct sleep_watch *watch, uint64_t deadline)
{
	struct timespec until = time_of(deadline);
	long result = 0;

	if (watch->count == 0)
		return sleep_unwatched(deadline, UINT64_MAX);
	if (sleep_waits_on_many()) {
		result = syscall(SYS_futex_waitv, watch->words, watch->count, 0, &until, CLOCK_MONOTONIC);
	} else {
		const struct futex_waitv *first = &watch->words[0];
		int command = FUTEX_WAIT_BITSET | (int)(first->flags & FUTEX_PRIVATE_FLAG);
		result = syscall(SYS_futex, first->uaddr, command, (uint32_t)first->val, &until, NULL,
				 FUTEX_BITSET_MATCH_ANY);
	}
	if (result >= 0 || errno == EAGAIN || errno == EINTR)
		return SLEEP_RUNG;
	return errno == ETIMEDOUT ? SLEEP_ELAPSED : sleep_unwatched(deadline, sleep_pause(0));
}

bool sleep_wake_shared(const shared_u32 *word)
{
	return syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0) > 0;
}

void sleep_wake_private(atomic_uint *word)
{
	atomic_fetch_add_explicit(word, 1, memory_order_release);
	(void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
