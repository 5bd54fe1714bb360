/* SPDX-License-Identifier: BSD-3-Clause */
/* wait.c - the waits of a step. */
#include "collectives/wait.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/*
 * Polls between two calls of the MPI library: about a microsecond, so that a short wait needs no call. Where
 * ranks share cores, the awaited rank may need this core, so fewer.
 */
#define POLLS 64
#define POLLS_SHARED 8
/* Rounds before a wait offers the core to other threads, some 100 us; if cores are shared, at once. */
#define ROUNDS_BEFORE_YIELD 100
/* A yield that lasts longer was taken by another thread: see api/idle.c. */
#define TAKEN_NANOSECONDS UINT64_C(2000)
/* After so many offers in a row that no thread took, cores are not shared any more. */
#define REFUSED_OFFERS 64
/* A wait that lasts longer sleeps between polls, so that it takes little of the core. */
#define SLEEP_AFTER UINT64_C(20000000)
#define SLEEP_AFTER_BLOCKING UINT64_C(100000)
#define SLEEP_NANOSECONDS 100000
/* Nanoseconds between two checks of a peer's life. */
#define LIFE_INTERVAL UINT64_C(10000000)

/* This thread's experience: do other threads want its core? */
static __thread __attribute__((tls_model("initial-exec"))) struct {
	bool shared;
	unsigned int refused;
} core;

static uint64_t now(void)
{
	struct timespec time;

	(void)clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* ---- the MPI library's progress ---- */

/*
 * A request of each thread that never completes. A test of it is the one call by which every MPI library
 * makes progress on all of its messages: a probe of MPI_COMM_SELF, for example, makes none in MPICH.
 */
static __thread __attribute__((tls_model("initial-exec"))) struct {
	handle request;
	unsigned int era;
} own;
/* Counts from 1. A request of another era may be of an MPI library that has ended since. */
static atomic_uint era = 1;

static int query_nothing(void *state, void *status)
{
	(void)state;
	(void)status;
	return MPI_OK;
}

static int free_nothing(void *state)
{
	(void)state;
	return MPI_OK;
}

static int cancel_nothing(void *state, int complete)
{
	(void)state;
	(void)complete;
	return MPI_OK;
}

static bool start_request(void)
{
	own.request = 0;
	if (MPI_CALL(Grequest_start, int (*)(void *, void *), int (*)(void *), int (*)(void *, int), void *,
		     handle *)(query_nothing, free_nothing, cancel_nothing, NULL, &own.request) != MPI_OK)
		return false;
	own.era = atomic_load(&era);
	return true;
}

/* Longer than the MPI_Status of any interface. */
struct any_status {
	_Alignas(16) char bytes[64];
};

void progress(void)
{
	struct any_status status;
	int flag = 0;

	if (__builtin_expect(own.era != atomic_load_explicit(&era, memory_order_relaxed), 0) &&
	    !start_request())
		return;
	communicator_wait_elsewhere(true);
	(void)MPI_CALL(Test, handle *, int *, void *)(&own.request, &flag, &status);
	communicator_wait_elsewhere(false);
}

void progress_finish(void)
{
	struct any_status status;
	int flag = 0;

	if (own.era == atomic_load(&era)) {
		(void)MPI_CALL(Grequest_complete, handle)(own.request);
		(void)MPI_CALL(Test, handle *, int *, void *)(&own.request, &flag, &status);
	}
	/* The requests of other threads are never completed, and never tested again. */
	(void)atomic_fetch_add(&era, 1);
}

/* ---- waiting ---- */

static bool is_blocking(void)
{
	static int blocking = -1;

	if (blocking < 0) {
		const char *text = getenv("VICINAL_PROGRESS");
		blocking = text != NULL && strcmp(text, "block") == 0;
	}
	return blocking == 1;
}

/* Offers the core. Returns the time. */
static uint64_t offer_core(void)
{
	uint64_t before = now();

	(void)sched_yield();
	uint64_t after = now();
	if (after - before > TAKEN_NANOSECONDS) {
		core.shared = true;
		core.refused = 0;
	} else if (core.shared && ++core.refused >= REFUSED_OFFERS) {
		core.shared = false;
		core.refused = 0;
	}
	return after;
}

static int polls(void)
{
	return core.shared ? POLLS_SHARED : POLLS;
}

bool wait_go_on(struct wait *wait, struct communicator *communicator, int rank)
{
	progress();
	if (++wait->rounds < ROUNDS_BEFORE_YIELD && !core.shared)
		return true;
	uint64_t time = offer_core();
	if (wait->began == 0) {
		wait->began = time;
		wait->next_check = time + LIFE_INTERVAL;
	}
	if (time - wait->began > (is_blocking() ? SLEEP_AFTER_BLOCKING : SLEEP_AFTER)) {
		const struct timespec pause = {.tv_sec = 0, .tv_nsec = SLEEP_NANOSECONDS};
		(void)nanosleep(&pause, NULL);
	}
	if (time < wait->next_check)
		return true;
	wait->next_check = time + LIFE_INTERVAL;
	return !communicator_peer_is_gone(communicator, rank);
}

void communicator_break(struct communicator *communicator, int rank, const char *what)
{
	(void)fprintf(stderr,
		      "vicinal: error: a collective among %d ranks cannot be completed: rank %d %s (seen by "
		      "rank %d)\n",
		      communicator->size, rank, what, communicator->rank);
	communicator->state = COMMUNICATOR_BROKEN;
}

int communicator_fail(const struct communicator *communicator)
{
	(void)MPI_CALL(Comm_call_errhandler, handle, int)(communicator->handle, mpi.error_other);
	return mpi.error_other;
}

bool step_wait_cell(struct communicator *communicator, int rank, uint64_t step, uint64_t kind)
{
	const struct cell *cell = &communicator->peers[rank].block->cells[step % CELLS];
	struct wait wait = {.rounds = 0};
	bool gone = false;

	for (;;) {
		uint64_t control = 0;
		for (int i = 0; i < polls(); i++) {
			control = shared_acquire_u64(&cell->control);
			if (control == step) {
				if (shared_load_u64(&cell->kind) == kind)
					return true;
				communicator_break(communicator, rank,
						   "called another collective, or one with another root or "
						   "length: all ranks must call the same");
				return false;
			}
			relax();
		}
		if (control > step) {
			communicator_break(communicator, rank, "broke the rules of the region");
			return false;
		}
		/* What a member published before it left counts. */
		if (gone) {
			communicator_break(communicator, rank, "ended, or left the region");
			return false;
		}
		gone = !wait_go_on(&wait, communicator, rank);
	}
}

/* The steps that `rank` has completed. A block with another number was released: it was done. */
static uint64_t completed(const struct communicator *communicator, int rank)
{
	const struct block *block = communicator->peers[rank].block;
	uint64_t done = shared_acquire_u64(&block->done);

	return shared_acquire_u64(&block->number) == communicator->number ? done : UINT64_MAX;
}

bool step_wait_complete(struct communicator *communicator, uint64_t step)
{
	uint64_t lowest = communicator->step;

	for (int rank = 0; rank < communicator->size; rank++) {
		struct wait wait = {.rounds = 0};
		uint64_t done = 0;
		bool gone = false;
		if (rank == communicator->rank)
			continue;
		while ((done = completed(communicator, rank)) < step) {
			for (int i = 0; i < polls() && (done = completed(communicator, rank)) < step; i++)
				relax();
			if (done >= step)
				break;
			if (gone) {
				communicator_break(communicator, rank, "ended, or left the region");
				return false;
			}
			gone = !wait_go_on(&wait, communicator, rank);
		}
		if (done < lowest)
			lowest = done;
	}
	if (lowest > communicator->complete)
		communicator->complete = lowest;
	return true;
}
