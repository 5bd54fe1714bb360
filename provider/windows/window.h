/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * window.h - the state of each window whose memory lies, on all its members, in one region.
 *
 * The MPI library has a window over the same memory. What this library does not do itself is passed on to it.
 * All addresses and bounds are private, so a peer can change only the bytes of windows.
 */
#ifndef VICINAL_WINDOWS_WINDOW_H
#define VICINAL_WINDOWS_WINDOW_H

#include <stdatomic.h>

#include "collectives/library.h"
#include "windows/memory.h"

enum window_flavor { WINDOW_CREATED, WINDOW_ALLOCATED, WINDOW_SHARED };

struct window_peer {
	unsigned char *base;
	uint64_t bytes;
	int64_t unit;
	const shared_u64 *claim; /* of the heap with the memory: see memory_claim() */
	uint32_t heap_epoch;     /* of the heap's owner */
	atomic_bool passed;      /* an operation was passed on since the last flush */
	uint32_t slot;
	uint32_t epoch;
	uint64_t heartbeat[2];
};

struct window {
	handle handle;
	handle comm;  /* for this library alone, with the window's ranks */
	void *memory; /* from memory_allocate(), to be released with the window; may be NULL */
	enum window_flavor flavor;
	int rank;
	int size;
	atomic_int epochs;          /* access epochs that are open, without those between fences */
	atomic_bool fenced;         /* an epoch between fences may be open */
	atomic_bool passed;         /* any peer's `passed` */
	atomic_bool wants_fence;    /* the MPI library needs the next fence for its own state */
	atomic_bool broken;         /* a rank ended or left: all further operations fail */
	atomic_bool checking;       /* a thread is in window_check() */
	struct window *next;        /* with the same place in the table */
	struct window_peer peers[]; /* by rank */
};

enum windows_state { WINDOWS_UNDECIDED, WINDOWS_ON, WINDOWS_OFF };
extern _Atomic enum windows_state windows_state;
void windows_decide(void);

/*
 * Are windows switched off, or is the MPI library one with which they do not work? Afterwards, `mpi` is
 * valid, as after mpi_look_up().
 */
static inline bool windows_are_off(void)
{
	if (__builtin_expect(atomic_load_explicit(&windows_state, memory_order_acquire) == WINDOWS_UNDECIDED,
			     0))
		windows_decide();
	return atomic_load_explicit(&windows_state, memory_order_relaxed) == WINDOWS_OFF;
}

/* The state of a window; NULL if all its operations are passed on. */
struct window *window_find(handle win);

/*
 * The ranks of `comm`, an intracommunicator, tell each other where their memory lies: `mine` is this rank's,
 * or NULL if it is in no region. Returns the state of a window if all of it lies in one region, else NULL:
 * the same on all ranks. Ends the process if no memory is left, because the other ranks would wait for it.
 */
struct window *window_exchange(const struct memory_place *mine, intptr_t unit, handle comm);
/* Call when the MPI library has made the window: `win` has its handle. */
void window_add(struct window *window, const void *win);
/* A handle in the program's memory. */
void window_store_handle(void *at, handle word);
/* For a window that window_add() does not get. Releases its `memory` too. */
void window_dispose(struct window *window);

/* MPI_Win_create() of the MPI library. `large`: the form with large counts. */
int window_create_behind(void *base, intptr_t bytes, intptr_t unit, bool large, handle info, handle comm,
			 void *win);

/* As MPI_Allgather(), of `bytes` bytes of each rank. Returns false if it fails. */
bool window_allgather(const void *from, void *to, size_t bytes, handle comm);
/* Room for what all ranks say. Ends the process if no memory is left. */
void *window_room(size_t count, size_t bytes, int size);

/*
 * Replaces MPI_Win_allocate() and MPI_Win_create(): `large` selects the form with large counts. Both return
 * the MPI library's status.
 */
int window_allocate(intptr_t bytes, intptr_t unit, bool large, handle info, handle comm, void *base,
		    void *win);
int window_create(void *base, intptr_t bytes, intptr_t unit, bool large, handle info, handle comm, void *win);
int window_free(void *win);

/* Reports an error by the window's error handler, and returns it. */
int window_fail(const struct window *window);

/*
 * In some of the calls, lets the MPI library work, and checks one of the ranks. A program may wait for a
 * value in a window, by calls that this library does itself, while a peer needs an answer of this process.
 */
void window_progress(struct window *window);

/* Marks the window as broken, and says so, if the rank has ended or left the region. */
void window_check(struct window *window, int rank);

/* Call after an operation was passed on, because only then its completion is awaited. */
static inline void window_was_passed(struct window *window, int rank)
{
	if (rank >= 0 && rank < window->size) {
		atomic_store(&window->peers[rank].passed, true);
		atomic_store(&window->passed, true);
	}
}

#endif
