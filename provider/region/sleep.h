/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sleep.h - sleeping until a peer rings, and waking a sleeper.
 *
 * Every shared word has one writer, so no other member can change a sleeper's word to wake it.
 * Instead, a sleeper waits on all its doorbells at once (FUTEX_WAITV): the words that its ringers
 * write, each with the value that the sleeper saw last. The kernel compares the values under a lock
 * that a waker also needs, so a ring is either seen there or wakes the sleeper.
 *
 *  receiver, before it sleeps              sender
 *  active := 0, sleeping := n              slot := message
 *  barrier in all senders' processes       active?  set: done
 *  poll all rings: found? do not sleep     clear: doorbell += 1
 *  wait until a doorbell differs           full fence; sleeping? not 0: FUTEX_WAKE(doorbell)
 *
 * The sender's two accesses on the short path, the store of the slot and the load of `active`, may
 * be reordered: there is no fence between them, because a fence would cost too much there. So the
 * sleeper has the kernel execute a barrier in every registered process (membarrier). After the
 * barrier, either the sleeper's poll sees a sender's message, or the sender loads a cleared
 * `active`.
 *
 * Members in different guests share no kernel. If their device has a doorbell (doorbell.h), the
 * sender interrupts the sleeper instead. A thread of the sleeper's process then changes a private
 * word on which all sleepers of the process wait. No member can request a barrier in another
 * kernel's processes, but a processor cannot delay its stores for long. So the sleeper waits for
 * SLEEP_SETTLE_NANOSECONDS between announcing its sleep and polling.
 *
 * If a part of this is missing (an old kernel, a filter of system calls, more doorbells than one
 * call takes, a peer in another kernel without a doorbell), a wake can be late, and sleeps are
 * short: see sleep_pause().
 */
#ifndef VICINAL_REGION_SLEEP_H
#define VICINAL_REGION_SLEEP_H

#include <linux/futex.h>

#include "region/layout.h"

/* The maximum number of words of one FUTEX_WAITV. */
#define SLEEP_WORDS_MAX 128U

/*
 * After this time, every processor sees an earlier store: a processor's some 70 pending stores take
 * a tenth of it, and an interrupted processor completes them first. If a store took longer, the
 * message would be seen when the sleep ends by itself.
 */
#define SLEEP_SETTLE_NANOSECONDS 10000U

/* The words that one sleep waits on. Private; filled anew for each sleep. */
struct sleep_watch {
	uint32_t count;
	uint32_t missing; /* words for which there was no room */
	struct futex_waitv words[SLEEP_WORDS_MAX];
};

enum sleep_end {
	SLEEP_RUNG,    /* a word changed, or the sleep ended early: poll */
	SLEEP_ELAPSED, /* the time is over */
};

/*
 * Is this process registered for barriers, so that a sleeper's barrier orders its stores? Registers
 * it at the first call.
 */
bool sleep_is_ordered(void);
/* Wait until earlier stores of other members are visible: see SLEEP_SETTLE_NANOSECONDS. */
void sleep_settle(void);
/*
 * Execute a barrier in every registered process of this kernel. Returns false if that is not
 * possible.
 */
bool sleep_order_senders(void);
/* Can a sleep wait on several words? Otherwise it waits only on the first, and must be short. */
bool sleep_waits_on_many(void);

static inline void sleep_watch_open(struct sleep_watch *watch)
{
	watch->count = 0;
	watch->missing = 0;
}

/* End the sleep if the word is not `seen`, or when it changes and its writer wakes the sleeper. */
void sleep_on_shared(struct sleep_watch *watch, const shared_u32 *word, uint32_t seen);
void sleep_on_private(struct sleep_watch *watch, const atomic_uint *word, uint32_t seen);

/*
 * Sleep until one of the words changes, but not beyond `deadline` (of monotonic_now(), in
 * nanoseconds). May return SLEEP_RUNG for no reason.
 */
enum sleep_end sleep_until(const struct sleep_watch *watch, uint64_t deadline);

/* Wake all sleepers on a word. Returns whether there were any. */
bool sleep_wake_shared(const shared_u32 *word);
/* Increment the word, and wake its sleepers. */
void sleep_wake_private(atomic_uint *word);

/*
 * The maximum length (in nanoseconds) of a sleep that a message may fail to end. `count` is the
 * number of such sleeps in a row before this one. The length is 50 us at first and doubles up to 1
 * ms, so the cost of a late wake stays close to the time already waited.
 */
static inline uint64_t sleep_pause(uint32_t count)
{
	const uint64_t shortest = 50000;
	const uint64_t longest = 1000000;

	return count < 5 && shortest << count < longest ? shortest << count : longest;
}

#endif
