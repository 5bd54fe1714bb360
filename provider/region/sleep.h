/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sleep.h - sleeping until a peer rings, and waking one that sleeps.
 *
 * Every shared word has one writer, so nobody can change a sleeper's word to wake it. A
 * sleeper waits on its doorbells instead, all at once (FUTEX_WAITV): the words of its
 * ringers, each with the value that the sleeper saw last. The kernel compares them while it
 * holds what a waker needs too, so a ring either is seen there or wakes.
 *
 *	receiver, before it sleeps              sender
 *	active := 0, sleeping := n              slot := message
 *	barrier in all senders' processes       active?  set: done
 *	look at all rings: found? do not sleep  clear: doorbell += 1
 *	wait until a doorbell differs           full fence; sleeping? not 0: FUTEX_WAKE(doorbell)
 *
 * The sender's two accesses on the left of the short path, storing the slot and loading
 * `active`, may pass each other: it has no fence between them, and must not pay for one. So
 * the sleeper has the kernel put one there, into every process that registered for that
 * (membarrier): after it, a sender's message shows in the sleeper's look, or `active` is
 * clear when the sender loads it.
 *
 * Members in different guests share no kernel. Where their device has a doorbell (doorbell.h), the
 * sender has it interrupt the sleeper instead, and a thread of the sleeper's process turns that into
 * a change of a word, which all who sleep there wait for. A barrier in another kernel's processes
 * nobody can ask for; but what a processor has stored it cannot keep to itself for long. So the
 * sleeper waits for SLEEP_SETTLE_NANOSECONDS between saying that it sleeps and its look.
 *
 * Where a part of this is missing (an old kernel, a filter of system calls, more doorbells
 * than one call takes, a peer in another kernel without a doorbell), a wake can be late, and
 * sleeps are short: see sleep_pause().
 */
#ifndef VICINAL_REGION_SLEEP_H
#define VICINAL_REGION_SLEEP_H

#include <linux/futex.h>

#include "region/layout.h"

/* What one FUTEX_WAITV takes. */
#define SLEEP_WORDS_MAX 128U

/*
 * What was stored so long ago everybody sees: a processor's some 70 waiting stores take a tenth of that,
 * and one that is interrupted completes them first. Were it not so, a message would be seen when the sleep
 * ends by itself.
 */
#define SLEEP_SETTLE_NANOSECONDS 10000U

/* The words that one sleep waits on. Private; filled anew for each sleep. */
struct sleep_watch {
	uint32_t count;
	uint32_t missing; /* words that found no room */
	struct futex_waitv words[SLEEP_WORDS_MAX];
};

enum sleep_end {
	SLEEP_RUNG,    /* or looked as if: look what there is */
	SLEEP_ELAPSED, /* the time is over */
};

/*
 * Has this process registered for barriers, so that a sleeper's barrier orders its stores?
 * Registers at the first call.
 */
bool sleep_is_ordered(void);
/* Wait until others' stores of before are to be seen: see SLEEP_SETTLE_NANOSECONDS. */
void sleep_settle(void);
/* A barrier in every process of this kernel that registered. False if there are none here. */
bool sleep_order_senders(void);
/* Can a sleep wait on several words? Otherwise it waits on the first, and must be short. */
bool sleep_waits_on_many(void);

static inline void sleep_watch_open(struct sleep_watch *watch)
{
	watch->count = 0;
	watch->missing = 0;
}

/* End the sleep when the word is not, or is no longer, `seen` and its writer wakes it. */
void sleep_on_shared(struct sleep_watch *watch, const shared_u32 *word, uint32_t seen);
void sleep_on_private(struct sleep_watch *watch, const atomic_uint *word, uint32_t seen);

/*
 * Sleep until one of the words changes, but not beyond `deadline` (of monotonic_now(), in
 * nanoseconds). May return SLEEP_RUNG for no reason.
 */
enum sleep_end sleep_until(const struct sleep_watch *watch, uint64_t deadline);

/* Wake all who sleep on a word. Returns whether there was somebody. */
bool sleep_wake_shared(const shared_u32 *word);
/* Change the word, and wake who sleeps on it. */
void sleep_wake_private(atomic_uint *word);

/*
 * How long a sleep may be (in nanoseconds) that a message may not end: the `count`-th of
 * them in a row, from 0. 50 us at first and twice as long each time up to 1 ms: what a late
 * wake costs stays near what was waited before.
 */
static inline uint64_t sleep_pause(uint32_t count)
{
	const uint64_t shortest = 50000;
	const uint64_t longest = 1000000;

	return count < 5 && shortest << count < longest ? shortest << count : longest;
}

#endif
