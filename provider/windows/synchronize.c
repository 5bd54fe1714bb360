/* SPDX-License-Identifier: BSD-3-Clause */
/* synchronize.c - see synchronize.h. */
#include "windows/synchronize.h"

#include "collectives/movement.h"

static void fence_memory(void)
{
	atomic_thread_fence(memory_order_seq_cst);
}

/* ---- flush ---- */

static void forget_passed(struct window *window, int rank)
{
	if (rank != ALL_RANKS) {
		if (rank >= 0 && rank < window->size)
			atomic_store(&window->peers[rank].passed, false);
		return;
	}
	atomic_store(&window->passed, false);
	for (int i = 0; i < window->size; i++)
		atomic_store(&window->peers[i].passed, false);
}

static int flush_passed(const struct window *window, int rank, bool local)
{
	if (rank == ALL_RANKS)
		return local ? MPI_CALL(Win_flush_local_all, handle)(window->handle)
			     : MPI_CALL(Win_flush_all, handle)(window->handle);
	return local ? MPI_CALL(Win_flush_local, int, handle)(rank, window->handle)
		     : MPI_CALL(Win_flush, int, handle)(rank, window->handle);
}

/* Outside of an epoch, and for ranks that are none, the MPI library reports the error. */
static bool is_passed(const struct window *window, int rank)
{
	if (atomic_load_explicit(&window->epochs, memory_order_relaxed) == 0 || rank >= window->size ||
	    (rank < 0 && rank != ALL_RANKS))
		return true;
	return rank == ALL_RANKS ? atomic_load(&window->passed) : atomic_load(&window->peers[rank].passed);
}

int synchronize_flush(struct window *window, int rank, bool local)
{
	int status = MPI_OK;

	fence_memory();
	if (__builtin_expect(is_passed(window, rank), 0)) {
		/* Before the flush: what another thread passes on meanwhile needs the next one. */
		if (!local)
			forget_passed(window, rank);
		status = flush_passed(window, rank, local);
	}
	window_progress(window);
	return atomic_load_explicit(&window->broken, memory_order_relaxed) ? window_fail(window) : status;
}

/* ---- epochs ---- */

void synchronize_begun(struct window *window)
{
	(void)atomic_fetch_add(&window->epochs, 1);
	/* The MPI library takes the epoch between fences as ended. */
	atomic_store(&window->fenced, false);
	atomic_store(&window->wants_fence, true);
	fence_memory();
}

void synchronize_exposed(struct window *window)
{
	atomic_store(&window->wants_fence, true);
	fence_memory();
}

void synchronize_order(struct window *window)
{
	fence_memory();
	window_progress(window);
}

void synchronize_ended(struct window *window, int rank)
{
	forget_passed(window, rank);
	window_check(window, rank == ALL_RANKS ? 0 : rank);
	(void)atomic_fetch_sub(&window->epochs, 1);
	fence_memory();
}

/* ---- fence ---- */

/*
 * A barrier by which the members also learn whether any of them needs the MPI library's fence. OUTCOME_PASS:
 * there is none in the region for this communicator.
 */
static enum outcome barrier(const struct window *window, bool mine, bool *any)
{
	struct communicator *communicator =
		collectives_are_off() ? NULL : communicator_find(window->comm, false);
	unsigned char all[COMMUNICATOR_MEMBERS_MAX] = {0};
	unsigned char flag = mine ? 1 : 0;

	*any = false;
	if (communicator == NULL || !communicator_enter(communicator))
		return OUTCOME_PASS;
	enum outcome outcome = communicator->state == COMMUNICATOR_BROKEN
				       ? OUTCOME_FAILED
				       : move_allgather(communicator, &flag, all, 1);
	communicator_leave(communicator);
	for (int rank = 0; rank < window->size && outcome == OUTCOME_DONE; rank++)
		*any = *any || all[rank] != 0;
	return outcome;
}

/* The values are facts of the interfaces' headers. */
static int no_precede(void)
{
	return mpi.abi == ABI_MPICH ? 8192 : mpi.abi == ABI_STANDARD ? 2048 : 2;
}

static int no_succeed(void)
{
	return mpi.abi == ABI_OPEN_MPI ? 16 : 16384;
}

int synchronize_fence(struct window *window, int assertion)
{
	bool any = false;
	bool ends = (assertion & no_succeed()) != 0;
	/* All members give the same two assertions, or none of them does. */
	bool mine = ends || (assertion & no_precede()) != 0 || atomic_load(&window->wants_fence) ||
		    atomic_load(&window->passed) ||
		    atomic_load_explicit(&window->epochs, memory_order_relaxed) != 0;
	int status = MPI_OK;

	fence_memory();
	enum outcome outcome = barrier(window, mine, &any);
	if (outcome == OUTCOME_FAILED)
		return window_fail(window);
	if (outcome == OUTCOME_PASS || any) {
		forget_passed(window, ALL_RANKS);
		status = MPI_CALL(Win_fence, int, handle)(assertion, window->handle);
		/* The MPI library's fence may not wait if there are assertions. */
		if (outcome == OUTCOME_PASS && status == MPI_OK)
			status = MPI_CALL(Barrier, handle)(window->comm);
	}
	if (status == MPI_OK) {
		atomic_store(&window->wants_fence, ends);
		atomic_store(&window->fenced, !ends);
	}
	fence_memory();
	return status;
}
