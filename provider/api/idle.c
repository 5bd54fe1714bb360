/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * idle.c - how a rank sleeps that reads in a loop and finds nothing.
 *
 * MPI libraries never call what waits; they read in a loop. A rank that does so must not burn
 * the machine: with more ranks than cores, the one that it waits for may need its core. It
 * must not sleep either while an answer may be microseconds away. So: poll again at once,
 * then offer the core at each poll, then sleep, which a message ends. Where those
 * offers are taken, ranks share cores, and the next waits make them sooner. With
 * VICINAL_PROGRESS=block sleeps begin at once.
 *
 * A sleep is short even if nothing comes, since what the rank waits for may not be ours to
 * see: a message by another transport, another thread's doing, a timer. And it is taken only
 * by a thread that does nothing but read, and has read all queues that it reads since the
 * last of them had anything: a rank that does other work between two polls is not waiting,
 * and must not be kept from it, nor one of whose domains another is busy.
 */
#include "api/provider.h"

#include <sched.h>
#include <time.h>

/*
 * thresholds.reads_before_yield: a poll takes 20 to 100 ns with an MPI around it, so 2000 are some
 * 100 us of plain polling. Where cores are shared down to 3 reads, some microseconds: what a yield
 * costs that is taken. thresholds.reads_before_sleep: a yield takes about half a microsecond when nobody
 * else wants the core, so 20000 are some 10 ms.
 */
/*
 * A yield takes 0.9 us when nobody wants the core, 1.3 at most of 99 in 100, and 4.2 and more when
 * another runs in between, if only to yield as well: docs/decisions/0004.
 */
#define TAKEN_NANOSECONDS 2000U

/* An MPI that waits is back sooner, by the clock or, if others had its core, by its own time. */
#define WORK_NANOSECONDS 3000U
/*
 * After a sleep the way back through the MPI finds nothing in the caches, and takes 3 to 8 us of
 * processor time, 16 on a busy machine. That is not work yet, for who asked for blocking: two polls
 * may take so long, but none of them ends in a sleep.
 */
#define WORK_AFTER_SLEEP_NANOSECONDS 20000U
#define POLLS_AFTER_SLEEP 2U
/*
 * The same holds after another thread had the core, and there a poll counts in full: an MPI that offers
 * its core before each poll, as MPICH does, has lost it each time on a busy machine. The longer the others
 * ran, the less is left in the caches: 18 us of processor time, and 60 of 99 in 100, after 4 ms of others.
 * So it is no work up to this share of their time either. Who did work as seldom would lose little by a
 * sleep, compared with what it loses to them: docs/decisions/0029.
 */
#define LOST_NANOSECONDS 2000U
#define LOST_SHARE 32U
/* What looks like work once is a reason for somewhat shorter sleeps; what finds something, for short ones. */
#define SLEEPS_LESS_AFTER_WORK 8U
/*
 * So many reads that found nothing on any domain come before a sleep: Open MPI reads the queue
 * of its btl for each eighth time that it reads that of its mtl.
 */
#define QUIET_READS 16U
/* Domains that one thread reads; with more it does not sleep. */
#define KNOWN_MAX 4U
/* One of them may have been closed: begin anew now and then. */
#define QUIET_READS_MAX 4096U

/*
 * Sleeps grow up to this: 50, 100, 200 us, and up to 1 ms if blocking was asked for. After
 * that many more (it has waited for 60 ms by then) one of those sleeps longer.
 */
#define SLEEPS_GROWING_ADAPTIVE 2U
#define SLEEPS_GROWING_BLOCKING 5U
#define SLEEPS_BEFORE_LONG 64U
#define LONG_SLEEP_NANOSECONDS 4000000U

struct known {
	const struct domain *domain; /* only to be compared: it may be closed meanwhile */
	bool ready;                  /* its words are in the watch */
};

/* What a thread did lately. */
static _Thread_local struct {
	uint64_t last_poll; /* when it ended */
	uint64_t last_work; /* the thread's processor time then */
	uint64_t away;      /* before the poll that began: time for anything but to read queues, */
	uint64_t lost;      /* and time that others had the core meanwhile */
	uint32_t finds;
	uint32_t quiet;  /* reads since anything was found */
	uint32_t sleeps; /* likewise */
	uint32_t awoke;  /* of the polls after a sleep, those still to come */
	bool too_many;   /* domains */
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
 * Its own time ends here: a poll may take 15 us with cold caches, and longer if the network is polled. The
 * processor's time takes a system call.
 */
__attribute__((noinline)) void idle_look_begins(void)
{
	uint64_t passed = monotonic_now() - idle.last_poll;

	idle.lost = 0;
	idle.away = passed;
	if (idle.last_poll == 0) { /* it never polled, and its watch is not open yet */
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

/* How long a thread that waits may have been away before this poll. */
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
 * Arm the sleep of this domain. Returns whether there was something after all. The domain stays
 * armed until one of its queues has something, over many sleeps.
 */
static bool arm_domain(struct domain *domain, struct known *known)
{
	domain_lock(domain);
	domain_sleep_arm(domain);
	uint32_t found = domain_progress_full(domain);
	if (found > 0) {
		domain_found(domain);
	} else if (!known->ready) {
		/* Uncertain or not: a sleep is short. */
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
	/* Another thread may do the same: what is lost is one of many. */
	atomic_store_explicit(&domain->crowding, crowding, memory_order_relaxed);
}

bool idle_pause(struct domain *domain, uint32_t empty, bool begun)
{
	if (idle_is_near(domain, empty)) {
		if (begun)
			return idle_sleep(domain, domain->mode == PROGRESS_BLOCK ? SLEEPS_GROWING_BLOCKING
										 : SLEEPS_GROWING_ADAPTIVE);
		/* How long the thread was away says the next poll, which begins after this. */
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
