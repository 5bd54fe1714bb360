/* SPDX-License-Identifier: BSD-3-Clause */
/* window.c - which windows use the region, and their lifetime. */
#include "windows/window.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/communicator.h"

#define TABLE_SIZE 256U

/* Never held while an MPI function is called. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct window *table[TABLE_SIZE]; /* under the mutex */
/* Incremented when a window is removed from the table: all threads look up again. */
static atomic_uint removals;

/* ---- the switch ---- */

_Atomic enum windows_state windows_state;

/*
 * MPICH before version 3.3, and what was made of it, may acquire a lock only with the first operation that it
 * does itself.
 */
static bool has_late_locks(void)
{
	static char text[65536]; /* longer than any MPI_MAX_LIBRARY_VERSION_STRING */
	int length = 0;

	return MPI_CALL(Get_library_version, char *, int *)(text, &length) != MPI_OK ||
	       strstr(text, "ch3") != NULL;
}

static void decide(void)
{
	mpi_look_up();
	bool off = memory_choice() == MEMORY_OFF || !mpi_is_usable();
	for (int i = FUNCTION_Comm_split; i <= FUNCTION_Win_test; i++)
		off = off || mpi.functions[i] == NULL;
	off = off || has_late_locks();
	atomic_store_explicit(&windows_state, off ? WINDOWS_OFF : WINDOWS_ON, memory_order_release);
}

void windows_decide(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, decide);
}

/* ---- the table ---- */

static struct window **place_of(handle win)
{
	return &table[handle_hash(win) % TABLE_SIZE];
}

static void put_in(struct window *window)
{
	(void)pthread_mutex_lock(&mutex);
	window->next = *place_of(window->handle);
	*place_of(window->handle) = window;
	(void)pthread_mutex_unlock(&mutex);
}

static void take_out(struct window *window)
{
	(void)pthread_mutex_lock(&mutex);
	for (struct window **link = place_of(window->handle); *link != NULL; link = &(*link)->next)
		if (*link == window) {
			*link = window->next;
			break;
		}
	(void)atomic_fetch_add(&removals, 1);
	(void)pthread_mutex_unlock(&mutex);
}

struct window *window_find(handle win)
{
	/* The last window of this thread. */
	static __thread __attribute__((tls_model("initial-exec"))) struct {
		handle win;
		struct window *window;
		unsigned int removals;
	} last;
	unsigned int now = atomic_load_explicit(&removals, memory_order_acquire);

	if (__builtin_expect(last.win == win && last.removals == now && last.window != NULL, 1))
		return last.window;
	(void)pthread_mutex_lock(&mutex);
	struct window *found = *place_of(win);
	while (found != NULL && found->handle != win)
		found = found->next;
	(void)pthread_mutex_unlock(&mutex);
	if (found != NULL) {
		last.win = win;
		last.window = found;
		last.removals = now;
	}
	return found;
}

/* ---- windows that are made ---- */

struct description {
	uint64_t version; /* of this exchange; 0: the memory is in no region */
	struct memory_place place;
	int64_t unit;
	uint32_t slot; /* of the rank itself */
	uint32_t epoch;
};
#define EXCHANGE_VERSION UINT64_C(2)

bool window_allgather(const void *from, void *to, size_t bytes, handle comm)
{
	return MPI_CALL(Allgather, const void *, int, handle, void *, int, handle,
			handle)(from, (int)bytes, mpi.byte, to, (int)bytes, mpi.byte, comm) == MPI_OK;
}

void *window_room(size_t count, size_t bytes, int size)
{
	void *room = calloc(count, bytes);

	if (room != NULL)
		return room;
	(void)fprintf(stderr,
		      "vicinal: error: no memory is left for a window of %d ranks: the job cannot go on\n",
		      size);
	abort();
}

/* Do all ranks say yes? The same answer on all. */
static bool all_agree(bool yes, int size, handle comm)
{
	unsigned char mine = yes ? 1 : 0;
	unsigned char *all = window_room((size_t)size, 1, size);
	bool agreed = window_allgather(&mine, all, 1, comm);

	for (int rank = 0; rank < size && agreed; rank++)
		agreed = all[rank] == 1;
	free(all);
	return agreed;
}

static bool fill(struct window *window, const struct description *all)
{
	for (int rank = 0; rank < window->size; rank++) {
		struct window_peer *peer = &window->peers[rank];
		peer->base = memory_map(&all[rank].place);
		peer->bytes = all[rank].place.bytes;
		peer->unit = all[rank].unit;
		peer->slot = all[rank].slot;
		peer->epoch = all[rank].epoch;
		if (peer->base == NULL || peer->unit < 0)
			return false;
		peer->claim = memory_claim(all[rank].place.slot);
		peer->heap_epoch = all[rank].place.epoch;
	}
	return true;
}

struct window *window_exchange(const struct memory_place *mine, intptr_t unit, handle comm)
{
	int size = 0;
	int rank = 0;
	int inter = 0;

	if (MPI_CALL(Comm_size, handle, int *)(comm, &size) != MPI_OK || size < 1 ||
	    MPI_CALL(Comm_rank, handle, int *)(comm, &rank) != MPI_OK ||
	    MPI_CALL(Comm_test_inter, handle, int *)(comm, &inter) != MPI_OK || inter != 0)
		return NULL;
	mpi_look_up_types();
	struct description ours = {.unit = unit};
	struct memory_place self;
	struct description *all = window_room((size_t)size, sizeof(*all), size);
	struct window *window =
		window_room(1, sizeof(*window) + (size_t)size * sizeof(window->peers[0]), size);
	if (mine != NULL && memory_find(NULL, 0, &self)) {
		ours.version = EXCHANGE_VERSION;
		ours.place = *mine;
		ours.slot = self.slot;
		ours.epoch = self.epoch;
	}
	window->rank = rank;
	window->size = size;
	bool valid = window_allgather(&ours, all, sizeof(ours), comm);
	/* All ranks see the same descriptions, so all end here or none. */
	for (int i = 0; i < size && valid; i++)
		valid = all[i].version == EXCHANGE_VERSION;
	if (valid)
		valid = all_agree(fill(window, all), size, comm) &&
			MPI_CALL(Comm_split, handle, int, int, handle *)(comm, 0, rank, &window->comm) ==
				MPI_OK;
	free(all);
	if (valid)
		return window;
	free(window);
	return NULL;
}

void window_dispose(struct window *window)
{
	if (window->memory != NULL)
		(void)memory_release(window->memory);
	(void)MPI_CALL(Comm_free, handle *)(&window->comm);
	free(window);
}

static handle handle_at(const void *win)
{
	uint32_t word = 0;
	handle whole = 0;

	if (mpi.abi == ABI_MPICH) {
		memcpy(&word, win, sizeof(word));
		return word;
	}
	memcpy(&whole, win, sizeof(whole));
	return whole;
}

void window_store_handle(void *at, handle word)
{
	uint32_t half = (uint32_t)word;

	if (mpi.abi == ABI_MPICH)
		memcpy(at, &half, sizeof(half));
	else
		memcpy(at, &word, sizeof(word));
}

void window_add(struct window *window, const void *win)
{
	window->handle = handle_at(win);
	atomic_store(&window->wants_fence, true);
	put_in(window);
}

int window_create_behind(void *base, intptr_t bytes, intptr_t unit, bool large, handle info, handle comm,
			 void *win)
{
	if (large && mpi.functions[FUNCTION_Win_create_c] != NULL)
		return MPI_CALL(Win_create_c, void *, intptr_t, intptr_t, handle, handle,
				void *)(base, bytes, unit, info, comm, win);
	return MPI_CALL(Win_create, void *, intptr_t, int, handle, handle, void *)(base, bytes, (int)unit,
										   info, comm, win);
}

static int allocate(intptr_t bytes, intptr_t unit, bool large, handle info, handle comm, void *base,
		    void *win)
{
	if (large && mpi.functions[FUNCTION_Win_allocate_c] != NULL)
		return MPI_CALL(Win_allocate_c, intptr_t, intptr_t, handle, handle, void *,
				void *)(bytes, unit, info, comm, base, win);
	return MPI_CALL(Win_allocate, intptr_t, int, handle, handle, void *, void *)(bytes, (int)unit, info,
										     comm, base, win);
}

/* Only if windows were asked for: by messages they work as they do without the region. */
static void say_no_room(intptr_t bytes)
{
	static atomic_bool said;

	if (memory_choice() == MEMORY_ON && memory_is_offered() && !memory_is_leaving() &&
	    !atomic_exchange(&said, true))
		(void)fprintf(
			stderr,
			"vicinal: warning: the region's heap has no room for a window of %lld bytes, so "
			"its operations are messages: give it more with 'vicinal run --heap "
			"region:SIZE', or unset VICINAL_WINDOWS\n",
			(long long)bytes);
}

int window_allocate(intptr_t bytes, intptr_t unit, bool large, handle info, handle comm, void *base,
		    void *win)
{
	struct memory_place place;

	if (windows_are_off() || mpi_is_null_comm(comm))
		return allocate(bytes, unit, large, info, comm, base, win);
	/* A rank without bytes takes a block too: it needs the region for the memory of the others. */
	void *memory = bytes < 0 ? NULL : memory_allocate((uint64_t)bytes);
	if (memory == NULL && bytes > 0)
		say_no_room(bytes);
	bool found = memory != NULL && memory_find(memory, (uint64_t)bytes, &place);
	struct window *window = window_exchange(found ? &place : NULL, unit, comm);
	if (window == NULL) {
		if (memory != NULL)
			(void)memory_release(memory);
		return allocate(bytes, unit, large, info, comm, base, win);
	}
	window->memory = memory;
	window->flavor = WINDOW_ALLOCATED;
	void *start = bytes == 0 ? NULL : memory;
	int status = window_create_behind(start, bytes, unit, large, info, comm, win);
	if (status != MPI_OK) {
		window_dispose(window);
		return status;
	}
	memcpy(base, &start, sizeof(start));
	window_add(window, win);
	return status;
}

int window_create(void *base, intptr_t bytes, intptr_t unit, bool large, handle info, handle comm, void *win)
{
	int status = window_create_behind(base, bytes, unit, large, info, comm, win);
	struct memory_place place;

	if (status != MPI_OK || windows_are_off())
		return status;
	void *memory = bytes == 0 ? memory_allocate(0) : NULL;
	bool found = (bytes > 0 || memory != NULL) && memory_find(base, (uint64_t)bytes, &place);
	struct window *window = window_exchange(found ? &place : NULL, unit, comm);
	if (window == NULL) {
		if (memory != NULL)
			(void)memory_release(memory);
		return status;
	}
	window->memory = memory;
	window_add(window, win);
	return status;
}

int window_free(void *win)
{
	struct window *window = windows_are_off() ? NULL : window_find(handle_at(win));

	if (window == NULL)
		return MPI_CALL(Win_free, void *)(win);
	/* Afterwards no rank accesses this memory by itself any more. */
	atomic_thread_fence(memory_order_seq_cst);
	(void)MPI_CALL(Barrier, handle)(window->comm);
	take_out(window);
	/* The MPI library completes what was passed on, and another window may get the handle. */
	int status = MPI_CALL(Win_free, void *)(win);
	if (status != MPI_OK)
		put_in(window);
	else
		window_dispose(window);
	return status;
}

int window_fail(const struct window *window)
{
	(void)MPI_CALL(Win_call_errhandler, handle, int)(window->handle, mpi.error_other);
	return mpi.error_other;
}

/* The MPI library's progress costs about 100 ns, or offers the core to others; a check of a rank about 1 us.
 */
#define CALLS_BETWEEN_PROGRESS 256U
#define PROGRESS_BETWEEN_CHECKS 4U

void window_progress(struct window *window)
{
	static __thread __attribute__((tls_model("initial-exec"))) unsigned int calls;

	if (__builtin_expect(++calls % CALLS_BETWEEN_PROGRESS != 0, 1))
		return;
	progress();
	unsigned int check = calls / CALLS_BETWEEN_PROGRESS;
	if (check % PROGRESS_BETWEEN_CHECKS == 0)
		window_check(window, (int)(check / PROGRESS_BETWEEN_CHECKS % (unsigned int)window->size));
}

void window_check(struct window *window, int rank)
{
	if (rank < 0 || rank >= window->size || atomic_load(&window->broken) ||
	    atomic_exchange(&window->checking, true))
		return;
	struct window_peer *peer = &window->peers[rank];
	if (memory_is_gone(peer->slot, peer->epoch, peer->heartbeat)) {
		(void)fprintf(
			stderr,
			"vicinal: error: a window of %d ranks cannot be used any more: rank %d ended, or "
			"left the region (seen by rank %d)\n",
			window->size, rank, window->rank);
		atomic_store(&window->broken, true);
	}
	atomic_store(&window->checking, false);
}
