/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * idle.c - what a rank does that finds nothing, again and again.
 *
 * MPI libraries never call what waits; they read in a loop. A rank that does so must not burn
 * the machine: with more ranks than cores, the one that it waits for may need its core. It
 * must not sleep either while an answer may be microseconds away. So: look again at once,
 * then offer the core at each look, then take naps, which a message ends. Where those
 * offers are taken, ranks share cores, and the next waits make them sooner. With
 * VICINAL_PROGRESS=block naps begin at once.
 *
 * A nap is short even if nothing comes, since what the rank waits for may not be ours to
 * see: a message by another transport, another thread's doing, a timer. And it is taken only
 * by a thread that does nothing but read, and has read all queues that it reads since the
 * last of them had anything: a rank that does other work between two looks is not waiting,
 * and must not be kept from it, nor one of whose domains another is busy.
 */
#include "api/provider.h"

#include <sched.h>
#include <time.h>

/*
 * thresholds.reads_before_yield: a look takes 20 to 100 ns with an MPI around it, so 2000 are some
 * 100 us of plain looking. Where cores are shared down to 3 reads, some microseconds: what a yield
 * costs that is taken. thresholds.reads_before_nap: a yield takes about half a microsecond when nobody
 * else wants the core, so 20000 are some 10 ms.
 */
/*
 * A yield takes 0.9 us when nobody wants the core, 1.3 at most of 99 in 100, and 4.2 and more when
 * another runs in between, if only to yield as well: docs/decisions/0004.
 */
#define TAKEN_NANOSECONDS 2000U
/* Of which the first few look 64 times: some 5 us. */
#define READS_BEFORE_NAP_BLOCKING 4U

/* An MPI that waits is back sooner, by the clock or, if others had its core, by its own time. */
#define WORK_NANOSECONDS 3000U
/*
 * After a nap the way back through the MPI finds nothing in the caches, and takes 3 to 8 us of
 * processor time, 16 on a busy machine. That is not work yet, for who asked for blocking: two looks
 * may take so long, but none of them ends in a nap.
 */
#define WORK_AFTER_NAP_NANOSECONDS 20000U
#define LOOKS_AFTER_NAP 2U
/* What looks like work once is a reason for somewhat shorter naps; what finds something, for short ones. */
#define NAPS_LESS_AFTER_WORK 8U
/*
 * So many reads that found nothing on any domain come before a nap: Open MPI reads the queue
 * of its btl for each eighth time that it reads that of its mtl.
 */
#define QUIET_READS 16U
/* Domains that one thread reads; with more it takes no naps. */
#define KNOWN_MOST 4U
/* One of them may have been closed: begin anew now and then. */
#define QUIET_READS_MOST 4096U

/*
 * Naps grow up to this: 50, 100, 200 us, and up to 1 ms for who asked for blocking. After
 * that many more (it has waited for 60 ms by then) one of those sleeps longer.
 */
#define NAPS_GROWING_ADAPTIVE 2U
#define NAPS_GROWING_BLOCKING 5U
#define NAPS_BEFORE_LONG 64U
#define NAP_LONG_NANOSECONDS 4000000U

struct known {
	const struct domain *domain; /* only to be compared: it may be closed meanwhile */
	bool ready;                  /* its words are in the watch */
};

/* What a thread did lately. */
static _Thread_local struct {
	uint64_t last_look;
	uint64_t last_work; /* the thread's processor time then */
	uint32_t finds;
	uint32_t quiet; /* reads since anything was found */
	uint32_t naps;  /* likewise */
	uint32_t awoke; /* of the looks after a nap, those still to come */
	bool too_many;  /* domains */
	uint32_t known_count;
	struct known known[KNOWN_MOST];
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
 * The time that this thread took for anything but to read queues, since the last look. The
 * processor's time takes a system call.
 */
static uint64_t time_away(void)
{
	uint64_t away = monotonic_now() - idle.last_look;

	if (idle.last_look == 0) /* it never looked, and its watch is not open yet */
		return UINT64_MAX;
	return away <= WORK_NANOSECONDS ? away : own_time() - idle.last_work;
}

static void note_look(void)
{
	idle.last_work = own_time();
	idle.last_look = monotonic_now();
}

static struct known *find_known(const struct domain *domain)
{
	for (uint32_t i = 0; i < idle.known_count; i++)
		if (idle.known[i].domain == domain)
			return &idle.known[i];
	if (idle.known_count == KNOWN_MOST) {
		idle.too_many = true;
		return NULL;
	}
	idle.known[idle.known_count] = (struct known){.domain = domain};
	return &idle.known[idle.known_count++];
}

/*
 * Lie down over this domain. Returns whether there was something after all. The domain stays
 * so until one of its queues has something, over many naps.
 */
static bool lie_down(struct domain *domain, struct known *known)
{
	domain_lock(domain);
	domain_rest(domain);
	uint32_t found = domain_look(domain);
	if (found > 0) {
		domain_found(domain);
	} else if (!known->ready) {
		/* Uncertain or not: a nap is short. */
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

static __attribute__((noinline)) bool nap(struct domain *domain, uint32_t growing)
{
	uint32_t finds = process_finds();
	uint64_t away = time_away();
	bool awoke = idle.awoke > 0 && growing == NAPS_GROWING_BLOCKING;

	idle.awoke -= idle.awoke > 0;
	if (finds != idle.finds || away > (awoke ? WORK_AFTER_NAP_NANOSECONDS : WORK_NANOSECONDS)) {
		uint32_t less = finds != idle.finds ? idle.naps : NAPS_LESS_AFTER_WORK;
		idle.naps -= less < idle.naps ? less : idle.naps;
		idle.finds = finds;
		forget_known();
		note_look();
		return false;
	}
	if (away > WORK_NANOSECONDS) {
		note_look();
		return false;
	}
	if (idle.quiet > QUIET_READS_MOST)
		forget_known();
	struct known *known = find_known(domain);
	if (known == NULL || ++idle.quiet < QUIET_READS) {
		note_look();
		return false;
	}
	if (lie_down(domain, known)) {
		note_look();
		return true;
	}
	bool napped = all_ready();
	if (napped) {
		bool longer = growing == NAPS_GROWING_BLOCKING && idle.naps > NAPS_BEFORE_LONG;
		uint64_t length = longer ? NAP_LONG_NANOSECONDS
					 : sleep_pause(idle.naps < growing ? idle.naps : growing);
		idle.naps++;
		idle.awoke = LOOKS_AFTER_NAP;
		(void)sleep_until(&idle.watch, monotonic_now() + length);
		for (uint32_t i = 0; i < idle.known_count; i++)
			idle.known[i].ready = false;
		sleep_watch_open(&idle.watch);
	}
	note_look();
	return napped;
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
	if (crowding > CROWDING_MOST)
		crowding = CROWDING_MOST;
	/* Another thread may do the same: what is lost is one of many. */
	atomic_store_explicit(&domain->crowding, crowding, memory_order_relaxed);
}

bool idle_pause(struct domain *domain, uint32_t empty)
{
	switch (domain->mode) {
	case PROGRESS_POLL:
		break;
	case PROGRESS_BLOCK:
		if (empty >= READS_BEFORE_NAP_BLOCKING)
			return nap(domain, NAPS_GROWING_BLOCKING);
		break;
	default:
		if (empty >= domain->thresholds.reads_before_nap)
			return nap(domain, NAPS_GROWING_ADAPTIVE);
		if (empty >= reads_before_yield(domain)) {
			offer_core(domain);
			return false;
		}
		break;
	}
	cpu_pause();
	return false;
}
