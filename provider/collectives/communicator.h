/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * communicator.h - the state of each communicator whose collectives go through the region, and the steps of a
 * collective: see block.h.
 */
#ifndef VICINAL_COLLECTIVES_COMMUNICATOR_H
#define VICINAL_COLLECTIVES_COMMUNICATOR_H

#include "collectives/block.h"
#include "collectives/counts.h"
#include "collectives/library.h"

/* More members would make the flat exchange slower than the MPI library's trees. */
#define COMMUNICATOR_MEMBERS_MAX 64

/*
 * Leaving. If a member must leave the region (`vicinal region detach`), all members do the same further
 * collectives by messages. Which ones they agree on by the words `closed`: each member stores there how many
 * collectives it has begun, when it sees that another member stored its own. The highest number is the last
 * collective through the region. A member that wants to begin a later one waits until all numbers are there.
 * The provider's progress sees to it that a member that computes answers too (vicinal_region_attend()).
 */

enum communicator_state {
	COMMUNICATOR_NEW,    /* too few collectives yet to be worth a block */
	COMMUNICATOR_REGION, /* all members share the region */
	COMMUNICATOR_PASSED, /* its collectives are the MPI library's */
	COMMUNICATOR_CLOSED, /* the same, because a member had to leave; `block` may not be released yet */
	COMMUNICATOR_BROKEN, /* a member died or broke the rules: all further collectives fail */
};

struct communicator_peer {
	const struct block *block;
	const shared_bytes *staging; /* NULL: not known yet */
	uint64_t heartbeat[2];
	uint32_t slot;
	uint32_t epoch;
};

struct communicator {
	handle handle; /* of handle_of() */
	enum communicator_state state;
	int rank;
	int size;
	/* Attempts to set it up: begin at this number of collectives, and how many are between two. */
	uint64_t retry_at;
	uint64_t retry_interval;
	uint64_t step;     /* the last step that was begun */
	uint64_t complete; /* all members have completed this step */
	/*
	 * Numbers of the last collectives that were begun, of whatever library, and that ended through the
	 * region. Written by the thread in a collective.
	 */
	atomic_uint_fast64_t begun;
	atomic_uint_fast64_t ended;
	atomic_bool closing;  /* written under the mutex: `closed` was stored */
	uint64_t last;        /* the last collective through the region + 1, once it is known; 0 before */
	unsigned int settled; /* under the mutex: the last round of communicators_settle() that took it */
	bool settling;        /* under the mutex: communicators_settle() waits for it */
	struct block *block;
	shared_bytes *staging;
	uint32_t piece;  /* bytes of a piece of all staging buffers */
	bool no_staging; /* a member has none: long data is the MPI library's */
	uint64_t number;
	struct communicator *next;        /* with the same place in the table, or among the retired */
	struct communicator_peer peers[]; /* by rank */
};

enum collectives_state { COLLECTIVES_UNDECIDED, COLLECTIVES_ON, COLLECTIVES_OFF };
extern _Atomic enum collectives_state collectives_state;
void collectives_decide(void);

/* Does VICINAL_COLLECTIVES leave all collectives to the MPI library? */
static inline bool collectives_are_off(void)
{
	if (__builtin_expect(atomic_load_explicit(&collectives_state, memory_order_relaxed) == COLLECTIVES_ON,
			     1))
		return false;
	collectives_decide();
	return atomic_load_explicit(&collectives_state, memory_order_relaxed) == COLLECTIVES_OFF;
}

/*
 * Counts a collective of a communicator. Returns its state if the collective goes through the region, else
 * NULL. All members of a communicator get the same answer for the same collective. The first collectives of a
 * communicator set it up, by messages. `reduces`: it is a reduction.
 */
struct communicator *communicator_find(handle comm, bool reduces);

/*
 * The rest of communicator_enter(), after `closing`. Returns false if the collective is the MPI library's,
 * true if it is not, or if the communicator broke.
 */
bool communicator_enter_closing(struct communicator *communicator);

/*
 * Lets the MPI library work: a member outside of the collective may wait for a message of this one. The
 * provider yields the processor there if cores are shared.
 */
void progress(void);
/* Before the end of a session or of the MPI library. */
void progress_finish(void);

/* A program that is never late must notice now and then that a member must leave, and progress its messages.
 */
#define COLLECTIVES_PER_PROGRESS 64

/*
 * Begins a collective that communicator_find() has counted. Returns false if it is the MPI library's. The
 * barrier that orders the count before the load is executed by the other side, in vicinal_region_attend().
 */
static inline bool communicator_enter(struct communicator *communicator)
{
	uint64_t begun = atomic_load_explicit(&communicator->begun, memory_order_relaxed);

	atomic_signal_fence(memory_order_seq_cst);
	if (__builtin_expect(begun % COLLECTIVES_PER_PROGRESS == 0, 0))
		progress();
	return __builtin_expect(!atomic_load_explicit(&communicator->closing, memory_order_relaxed), 1) ||
	       communicator_enter_closing(communicator);
}

static inline void communicator_leave(struct communicator *communicator)
{
	atomic_store_explicit(&communicator->ended,
			      atomic_load_explicit(&communicator->begun, memory_order_relaxed),
			      memory_order_release);
}

/* All communicators of this process: wait until no peer reads this process's blocks. For the end of a
 * session. */
void communicators_settle(void);
/* The same, and no communicator is used any more. For MPI_Finalize(). */
void communicators_finish(void);

/* Reports an error by the communicator's error handler, and returns it. */
int communicator_fail(const struct communicator *communicator);

/* ---- steps ---- */

/* What a member does in a step. All members of a step agree on it, or the program is wrong. */
static inline uint64_t step_kind(int collective, int root, uint64_t bytes)
{
	return (uint64_t)collective << 56 | (uint64_t)(uint8_t)root << 48 | (bytes & 0xffffffffffff);
}

/* Waits until all members have completed the step. Returns false if one is gone. */
bool step_wait_complete(struct communicator *communicator, uint64_t step);

/*
 * Begins the next step. Returns its number, or 0 if the communicator is broken. Afterwards, this member's
 * cell and its piece of the staging buffer for this step are free.
 */
static inline uint64_t step_begin(struct communicator *communicator)
{
	uint64_t step = ++communicator->step;

	if (__builtin_expect(step > communicator->complete + CELLS, 0) &&
	    !step_wait_complete(communicator, step - CELLS))
		return 0;
	return step;
}

/* The data of this member's cell for a step; `staged` selects the piece of its staging buffer. */
static inline shared_bytes *step_data(const struct communicator *communicator, uint64_t step, bool staged)
{
	return staged ? communicator->staging + step % CELLS * communicator->piece
		      : communicator->block->cells[step % CELLS].data;
}

/*
 * Publishes this member's data, `bytes` in all, which the caller has copied to step_data(). Pairs with
 * step_read().
 */
static inline void step_publish(const struct communicator *communicator, uint64_t step, uint64_t kind,
				size_t bytes)
{
	struct cell *cell = &communicator->block->cells[step % CELLS];

	shared_store_u64(&cell->kind, kind);
	shared_release_u64(&cell->control, step);
	count_more(COUNTED_COLLECTIVE_BYTES, bytes);
}

/* Waits for a peer's cell. Returns false if the peer is gone or does something else in this step. */
bool step_wait_cell(struct communicator *communicator, int rank, uint64_t step, uint64_t kind);

/*
 * Waits until the member `rank` has published its data for the step, and returns the data; NULL if the
 * communicator is broken.
 */
static inline const shared_bytes *step_read(struct communicator *communicator, int rank, uint64_t step,
					    uint64_t kind, bool staged)
{
	const struct communicator_peer *peer = &communicator->peers[rank];
	const struct cell *cell = &peer->block->cells[step % CELLS];

	if (__builtin_expect(
		    shared_acquire_u64(&cell->control) != step || shared_load_u64(&cell->kind) != kind, 0) &&
	    !step_wait_cell(communicator, rank, step, kind))
		return NULL;
	return staged ? peer->staging + step % CELLS * communicator->piece : cell->data;
}

/* Ends a step: this member reads no cell of the step any more. `all`: it has read the cells of all others. */
static inline void step_end(struct communicator *communicator, uint64_t step, bool all)
{
	shared_release_u64(&communicator->block->done, step);
	if (all)
		communicator->complete = step - 1;
}

/*
 * Makes staging buffers known among the members, and what pieces they use, by a step. All members call it in
 * the same collective. Returns false if the communicator is broken; `no_staging` says afterwards whether
 * there are any.
 */
bool communicator_stage(struct communicator *communicator);

#endif
