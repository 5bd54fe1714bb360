/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * idle.c - how a rank sleeps that reads in a loop and finds nothing.
 *
 * MPI libraries make no blocking calls; they read in a loop. With more ranks than cores, the awaited rank may
 * need the core of the waiting rank, so the waiting rank must not poll for ever. It must not sleep either
 * while an answer may be microseconds away. So the rank first polls again at once, then offers its core at
 * each poll, then sleeps until a message arrives. If the offers are taken, ranks share cores, and the next
 * waits make offers sooner. With VICINAL_PROGRESS=block sleeps begin at once.
 *
 * A sleep is short even if nothing arrives, because the rank may wait for an event that the provider does not
 * see: a message of another transport, an action of another thread, a timer. Only a thread that does nothing
 * but read sleeps, and only after it read all its queues since any of them last had an entry. A rank that
 * does other work between two polls is not waiting, and must not be delayed. The same holds if another domain
 * of the thread is busy.
 */
#include "api/provider.h"

#include <sched.h>
#include <time.h>

/*
 * thresholds.reads_before_yield: a poll takes 20 to 100 ns including the MPI library, so 2000 polls are some
 * 100 us. If cores are shared, the number falls to 3 reads, some microseconds: the cost of a yield that is
 * taken.
 *
 * thresholds.reads_before_sleep: a yield takes about half a microsecond if no other thread wants the core, so
 * 20000 reads are some 10 ms.
 */
/*
 * A yield that lasts longer was taken by another thread. A yield takes 0.9 us if no other thread wants the
 * core, and in 99 of 100 cases at most 1.3 us. It takes 4.2 us or more if another thread runs in between,
 * even one that only yields: docs/decisions/0004.
 */
#define TAKEN_NANOSECONDS 2000U

/*
 * A thread that is away longer did work. A waiting MPI library polls again sooner: by the clock or, if other
 * threads had its core, by the thread's own processor time.
 */
#define WORK_NANOSECONDS 3000U
/*
 * After a sleep, the MPI library's code finds cold caches and takes 3 to 8 us of processor time until it
 * polls, 16 us on a busy machine. With VICINAL_PROGRESS=block that is not work yet: the first two polls may
 * be that late, but a late poll never ends in a sleep.
 */
#define WORK_AFTER_SLEEP_NANOSECONDS 20000U
#define POLLS_AFTER_SLEEP 2U
/*
 * The same holds after another thread had the core, but then a poll counts in full: an MPI library that
 * yields before each poll, as MPICH does, loses its core each time on a busy machine. The longer the other
 * threads ran, the less is left in the caches: after 4 ms of other threads, the way back takes 18 us of
 * processor time, in 99 of 100 cases at most 60 us. So processor time up to this share of the other threads'
 * time is no work either. A thread that works so rarely loses little by a sleep, compared with what it loses
 * to the other threads: docs/decisions/0029.
 */
#define LOST_NANOSECONDS 2000U
#define LOST_SHARE 32U
/*
 * After work, the next sleeps are this many steps shorter. After an entry was found, they start with the
 * shortest.
 */
#define SLEEPS_LESS_AFTER_WORK 8U
/*
 * A sleep needs this many reads in a row that found nothing in any domain. Open MPI reads its btl's queue
 * once for eight reads of its mtl's queue.
 */
#define QUIET_READS 16U
/* The most domains that a sleeping thread reads. A thread that reads more never sleeps. */
#define KNOWN_MAX 4U
/* After this many reads, forget the known domains: one of them may have been closed. */
#define QUIET_READS_MAX 4096U

/*
 * Sleeps grow to 50, 100 and 200 us, and with VICINAL_PROGRESS=block to 1 ms. After 64 more sleeps, some 60
 * ms of waiting, blocking ranks sleep for LONG_SLEEP_NANOSECONDS.
 */
#define SLEEPS_GROWING_ADAPTIVE 2U
#define SLEEPS_GROWING_BLOCKING 5U
#define SLEEPS_BEFORE_LONG 64U
#define LONG_SLEEP_NANOSECONDS 4000000U

struct known {
	const struct domain *domain; /* only compared: it may be closed meanwhile */
	bool ready;                  /* its words are in the watch */
};

/* Recent activity of this thread. */
static _Thread_local struct {
	uint64_t last_poll; /* when the last poll ended */
	uint64_t last_work; /* the thread's processor time at that moment */
	uint64_t away;      /* from then until the current poll began: time spent on anything but polls, */
	uint64_t lost;      /* and time during which other threads had the core */
	uint32_t finds;
	uint32_t quiet;  /* reads since a queue last had an entry */
	uint32_t sleeps; /* the same for sleeps */
	uint32_t awoke;  /* polls left that count as polls after a sleep */
	bool too_many;   /* it reads more domains than KNOWN_MAX */
	bool elsewhere;  /* it waits for something else meanwhile: see region_source.h */
	uint32_t known_count;
	struct known known[KNOWN_MAX];
	struct sleep_watch watch;
} idle;

static uint64_t own_time(void)
{
	struct timespec time;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (uint64_t)time.tv_sec * 1000000000U + (uint64_t)time.tv_nsec;
}

static void forget_known(void)
{
	idle.known_count = 0;
	idle.too_many = false;
	idle.quiet = 0;
	sleep_watch_open(&idle.watch);
}

/*
 * A poll begins: notes the time since the last poll that this thread spent on anything but polls. The time of
 * the poll itself does not count: it may take 15 us with cold caches, and more if it polls the network.
 * Processor time costs a system call, so it is read only if the clock does not decide.
 */
__attribute__((noinline)) void idle_poll_begins(void)
{
	uint64_t passed = monotonic_now() - idle.last_poll;

	idle.lost = 0;
	idle.away = passed;
	if (idle.last_poll == 0) { /* the thread never polled, and its watch is not open yet */
		idle.away = UINT64_MAX;
	} else if (passed > WORK_NANOSECONDS) {
		idle.away = own_time() - idle.last_work;
		idle.lost = passed > idle.away ? passed - idle.away : 0;
	}
}

static void note_poll(void)
{
	idle.last_work = own_time();
	idle.last_poll = monotonic_now();
}

/* The longest time away before this poll, in nanoseconds, that is not work yet. */
static uint64_t longest_away(void)
{
	if (idle.lost <= LOST_NANOSECONDS)
		return WORK_NANOSECONDS;
	return idle.lost / LOST_SHARE > WORK_AFTER_SLEEP_NANOSECONDS ? idle.lost / LOST_SHARE
								     : WORK_AFTER_SLEEP_NANOSECONDS;
}

static struct known *find_known(const struct domain *domain)
{
	for (uint32_t i = 0; i < idle.known_count; i++)
		if (idle.known[i].domain == domain)
			return &idle.known[i];
	if (idle.known_count == KNOWN_MAX) {
		idle.too_many = true;
		return NULL;
	}
	idle.known[idle.known_count] = (struct known){.domain = domain};
	return &idle.known[idle.known_count++];
}

/*
 * Arms the sleep of this domain. Returns whether a last poll found something. The domain stays armed over
 * many sleeps, until one of its queues has an entry.
 */
static bool arm_domain(struct domain *domain, struct known *known)
{
	domain_lock(domain);
	domain_sleep_arm(domain);
	uint32_t found = domain_progress_full(domain);
	if (found > 0) {
		domain_found(domain);
	} else if (!known->ready) {
		/* An uncertain watch is acceptable because the sleep is short. */
		(void)domain_watch(domain, &idle.watch);
		known->ready = true;
	}
	domain_unlock(domain);
	return found > 0;
}

static bool all_ready(void)
{
	for (uint32_t i = 0; i < idle.known_count; i++)
		if (!idle.known[i].ready)
			return false;
	return !idle.too_many;
}

static __attribute__((noinline)) bool idle_sleep(struct domain *domain, uint32_t growing)
{
	uint32_t finds = process_finds();
	uint64_t longest = longest_away();
	bool awoke = idle.awoke > 0 && growing == SLEEPS_GROWING_BLOCKING;

	idle.awoke -= idle.awoke > 0;
	if (finds != idle.finds ||
	    idle.away > (awoke && longest < WORK_AFTER_SLEEP_NANOSECONDS ? WORK_AFTER_SLEEP_NANOSECONDS
									 : longest)) {
		uint32_t less = finds != idle.finds ? idle.sleeps : SLEEPS_LESS_AFTER_WORK;
		idle.sleeps -= less < idle.sleeps ? less : idle.sleeps;
		idle.finds = finds;
		forget_known();
		note_poll();
		return false;
	}
	if (idle.away > longest) {
		note_poll();
		return false;
	}
	if (idle.quiet > QUIET_READS_MAX)
		forget_known();
	struct known *known = find_known(domain);
	if (known == NULL || ++idle.quiet < QUIET_READS) {
		note_poll();
		return false;
	}
	if (arm_domain(domain, known)) {
		note_poll();
		return true;
	}
	bool slept = all_ready();
	if (slept) {
		bool longer = growing == SLEEPS_GROWING_BLOCKING && idle.sleeps > SLEEPS_BEFORE_LONG;
		uint64_t length = longer ? LONG_SLEEP_NANOSECONDS
					 : sleep_pause(idle.sleeps < growing ? idle.sleeps : growing);
		idle.sleeps++;
		idle.awoke = POLLS_AFTER_SLEEP;
		(void)sleep_until(&idle.watch, monotonic_now() + length);
		for (uint32_t i = 0; i < idle.known_count; i++)
			idle.known[i].ready = false;
		sleep_watch_open(&idle.watch);
	}
	note_poll();
	return slept;
}

static uint32_t reads_before_yield(const struct domain *domain)
{
	return domain->thresholds.reads_before_yield >>
	       atomic_load_explicit(&domain->crowding, memory_order_relaxed) / CROWDING_STEP;
}

static __attribute__((noinline)) void offer_core(struct domain *domain)
{
	uint32_t crowding = atomic_load_explicit(&domain->crowding, memory_order_relaxed);
	uint64_t before = monotonic_now();

	(void)sched_yield();
	if (monotonic_now() - before > TAKEN_NANOSECONDS)
		crowding += CROWDING_STEP;
	else if (crowding > 0)
		crowding--;
	if (crowding > CROWDING_MAX)
		crowding = CROWDING_MAX;
	/* Another thread may store at the same time. Losing one update of many does no harm. */
	atomic_store_explicit(&domain->crowding, crowding, memory_order_relaxed);
}

void idle_elsewhere(bool waits)
{
	idle.elsewhere = waits;
}

bool idle_pause(struct domain *domain, uint32_t empty, bool begun)
{
	if (idle.elsewhere)
		return false;
	if (idle_is_near(domain, empty)) {
		if (begun)
			return idle_sleep(domain, domain->mode == PROGRESS_BLOCK ? SLEEPS_GROWING_BLOCKING
										 : SLEEPS_GROWING_ADAPTIVE);
		/* The next poll notes how long the thread was away after this one. */
		note_poll();
		return false;
	}
	switch (domain->mode) {
	case PROGRESS_POLL:
	case PROGRESS_BLOCK:
		break;
	default:
		if (empty >= reads_before_yield(domain)) {
			offer_core(domain);
			return false;
		}
		break;
	}
	cpu_pause();
	return false;
}
