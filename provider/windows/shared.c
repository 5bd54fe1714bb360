/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shared.c - see shared.h. The segments of a window lie one behind the other in a block of one member's heap,
 * or with the info alloc_shared_noncontig each in a block of its own rank's heap.
 */
#include "windows/shared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ways to lay a window out, or reasons for which it is not in the region. */
enum layout { LAYOUT_NO_REGION, LAYOUT_SEVERAL_REGIONS, LAYOUT_NO_ROOM, LAYOUT_CONTIGUOUS, LAYOUT_SEPARATE };

struct wanted {
	struct memory_place self; /* no bytes: where this rank's heap is */
	uint64_t bytes;
	uint64_t usable; /* 1: this rank has a region */
	uint64_t separate;
};

static int allocate_behind(intptr_t bytes, intptr_t unit, bool large, handle info, handle comm, void *base,
			   void *win)
{
	if (large && mpi.functions[FUNCTION_Win_allocate_shared_c] != NULL)
		return MPI_CALL(Win_allocate_shared_c, intptr_t, intptr_t, handle, handle, void *,
				void *)(bytes, unit, info, comm, base, win);
	return MPI_CALL(Win_allocate_shared, intptr_t, int, handle, handle, void *,
			void *)(bytes, (int)unit, info, comm, base, win);
}

static bool is_separate(handle info)
{
	static const char key[] = "alloc_shared_noncontig";
	char value[8] = "";
	int found = 0;

	return info != mpi.info_null && mpi.functions[FUNCTION_Info_get] != NULL &&
	       MPI_CALL(Info_get, handle, const char *, int, char *, int *)(info, key, (int)sizeof(value) - 1,
									    value, &found) == MPI_OK &&
	       found != 0 && strcmp(value, "true") == 0;
}

/* ---- errors, and windows that the MPI library can make ---- */

/* Does the MPI library say that all ranks of `comm` share memory? The same answer on all ranks. */
static bool is_one_node(handle comm, int size, int rank)
{
	handle group = 0;
	int together = 0;

	if (shared_split_behind(comm, shared_type(), rank, mpi.info_null, &group) != MPI_OK ||
	    MPI_CALL(Comm_size, handle, int *)(group, &together) != MPI_OK)
		return false;
	(void)MPI_CALL(Comm_free, handle *)(&group);
	return together == size;
}

/* The values are facts of the interfaces' headers. */
static int error_no_memory(void)
{
	return mpi.abi == ABI_MPICH ? 34 : 39;
}

static int error_not_shared(void)
{
	return mpi.abi == ABI_MPICH ? 57 : mpi.abi == ABI_STANDARD ? 49 : 71;
}
enum { ERROR_RANK = 6 }; /* the same in all three */

static int refuse(enum layout reason, uint64_t bytes, int rank, handle comm)
{
	int code = reason == LAYOUT_NO_ROOM ? error_no_memory() : error_not_shared();

	if (rank == 0 && reason == LAYOUT_NO_ROOM)
		(void)fprintf(
			stderr,
			"vicinal: error: no heap of the region has room for a shared window of %llu "
			"bytes: give the heaps more with 'vicinal run --heap region:SIZE', set the info "
			"alloc_shared_noncontig, or unset VICINAL_WINDOWS\n",
			(unsigned long long)bytes);
	else if (rank == 0)
		(void)fprintf(
			stderr,
			"vicinal: error: the ranks of a shared window are not all in one region: make its "
			"communicator by MPI_Comm_split_type with MPI_COMM_TYPE_SHARED\n");
	(void)MPI_CALL(Comm_call_errhandler, handle, int)(comm, code);
	return code;
}

/* ---- the memory ---- */

/* Looks at what all ranks want. `before` gets the bytes of the ranks before this one. */
static enum layout choose(const struct wanted *all, int size, int rank, uint64_t *before, uint64_t *total)
{
	bool separate = true;
	bool together = true;
	int inside = 0;

	*total = 0;
	for (int other = 0; other < size; other++) {
		if (other == rank)
			*before = *total;
		if (__builtin_add_overflow(*total, all[other].bytes, total))
			return LAYOUT_NO_ROOM;
		separate = separate && all[other].separate == 1;
		together =
			together && memcmp(all[other].self.id, all[0].self.id, sizeof(all[0].self.id)) == 0;
		inside += all[other].usable == 1 ? 1 : 0;
	}
	if (inside < size || !together)
		return inside == 0 ? LAYOUT_NO_REGION : LAYOUT_SEVERAL_REGIONS;
	return separate ? LAYOUT_SEPARATE : LAYOUT_CONTIGUOUS;
}

/*
 * The block of all segments: of the first rank whose heap has room. Returns the owner's rank, or -1. `offset`
 * gets the offset in the owner's heap. The owner's `memory` is the block.
 */
static int find_owner(uint64_t total, int size, int rank, handle comm, void **memory, uint64_t *offset)
{
	struct memory_place place = {.offset = 0};

	for (int owner = 0; owner < size; owner++) {
		uint64_t word = 0; /* 1 + the offset, or 0 */
		if (owner == rank && (*memory = memory_allocate(total)) != NULL &&
		    memory_find(*memory, total, &place))
			word = place.offset + 1;
		if (MPI_CALL(Bcast, void *, int, handle, int, handle)(&word, (int)sizeof(word), mpi.byte,
								      owner, comm) != MPI_OK)
			return -1;
		if (word != 0) {
			*offset = word - 1;
			return owner;
		}
	}
	return -1;
}

/*
 * Finds memory in the region. Returns the window's state, whose peers know their segments, or NULL with a
 * reason in `layout`: the same on all ranks.
 */
static struct window *make(const struct wanted *mine, intptr_t unit, int size, int rank, handle comm,
			   enum layout *layout, uint64_t *total)
{
	struct wanted *all = window_room((size_t)size, sizeof(*all), size);
	struct memory_place place = mine->self;
	struct window *window = NULL;
	void *memory = NULL;
	uint64_t before = 0;
	uint64_t offset = 0;
	bool valid = window_allgather(mine, all, sizeof(*mine), comm);

	*layout = valid ? choose(all, size, rank, &before, total) : LAYOUT_NO_REGION;
	if (*layout == LAYOUT_SEPARATE) {
		memory = memory_allocate(mine->bytes);
		valid = memory != NULL && memory_find(memory, mine->bytes, &place);
	} else if (*layout == LAYOUT_CONTIGUOUS) {
		int owner = find_owner(*total, size, rank, comm, &memory, &offset);
		/* A rank without a block in its own heap could leave the region. */
		if (memory == NULL && owner >= 0)
			memory = memory_allocate(0);
		valid = memory != NULL && owner >= 0;
		if (valid) {
			place = all[owner].self;
			place.offset = offset + before;
			place.bytes = mine->bytes;
		}
	} else {
		valid = false;
	}
	free(all);
	if (*layout >= LAYOUT_CONTIGUOUS) {
		window = window_exchange(valid ? &place : NULL, unit, comm);
		*layout = window != NULL ? *layout : LAYOUT_NO_ROOM;
	}
	if (window != NULL)
		window->memory = memory;
	else if (memory != NULL)
		(void)memory_release(memory);
	return window;
}

int shared_allocate(intptr_t bytes, intptr_t unit, bool large, handle info, handle comm, void *base,
		    void *win)
{
	struct wanted mine = {.bytes = (uint64_t)bytes};
	enum layout layout = LAYOUT_NO_REGION;
	uint64_t total = 0;
	int size = 0;
	int rank = 0;
	int inter = 0;

	if (windows_are_off() || memory_choice() != MEMORY_ON || mpi_is_null_comm(comm) || bytes < 0 ||
	    MPI_CALL(Comm_size, handle, int *)(comm, &size) != MPI_OK || size < 2 ||
	    MPI_CALL(Comm_rank, handle, int *)(comm, &rank) != MPI_OK ||
	    MPI_CALL(Comm_test_inter, handle, int *)(comm, &inter) != MPI_OK || inter != 0)
		return allocate_behind(bytes, unit, large, info, comm, base, win);
	mine.usable = memory_find(NULL, 0, &mine.self) ? 1 : 0;
	mine.separate = is_separate(info) ? 1 : 0;
	struct window *window = make(&mine, unit, size, rank, comm, &layout, &total);
	if (window == NULL) {
		if (layout == LAYOUT_NO_REGION || is_one_node(comm, size, rank))
			return allocate_behind(bytes, unit, large, info, comm, base, win);
		return refuse(layout, total, rank, comm);
	}
	void *start = window->peers[rank].base;
	int status = window_create_behind(start, bytes, unit, large, info, comm, win);
	if (status != MPI_OK) {
		window_dispose(window);
		return status;
	}
	window->flavor = WINDOW_SHARED;
	memcpy(base, &start, sizeof(start));
	window_add(window, win);
	return status;
}

/* ---- queries ---- */

static int query_behind(handle win, int rank, intptr_t *bytes, void *unit, bool large, void *base)
{
	intptr_t wide = 0;
	int narrow = 0;
	int status = MPI_OK;

	if (!large)
		return MPI_CALL(Win_shared_query, handle, int, intptr_t *, void *, void *)(win, rank, bytes,
											   unit, base);
	if (mpi.functions[FUNCTION_Win_shared_query_c] != NULL)
		return MPI_CALL(Win_shared_query_c, handle, int, intptr_t *, void *, void *)(win, rank, bytes,
											     unit, base);
	status = MPI_CALL(Win_shared_query, handle, int, intptr_t *, int *, void *)(win, rank, bytes, &narrow,
										    base);
	wide = narrow;
	memcpy(unit, &wide, sizeof(wide));
	return status;
}

static int proc_null(void)
{
	return mpi.abi == ABI_MPICH ? -1 : mpi.abi == ABI_STANDARD ? -3 : -2;
}

int shared_query(handle win, int rank, intptr_t *bytes, void *unit, bool large, void *base)
{
	const struct window *window = windows_are_off() ? NULL : window_find(win);

	if (window == NULL)
		return query_behind(win, rank, bytes, unit, large, base);
	if (rank != proc_null() && (rank < 0 || rank >= window->size)) {
		(void)MPI_CALL(Win_call_errhandler, handle, int)(win, ERROR_RANK);
		return ERROR_RANK;
	}
	/* MPI_PROC_NULL: the first rank that has bytes, or else any. */
	int asked = rank != proc_null() ? rank : 0;
	for (int other = 0; rank == proc_null() && other < window->size; other++)
		if (window->peers[other].bytes != 0) {
			asked = other;
			break;
		}
	const struct window_peer *peer = &window->peers[asked];
	intptr_t wide = (intptr_t)peer->unit;
	int narrow = (int)peer->unit;
	*bytes = (intptr_t)peer->bytes;
	memcpy(base, &peer->base, sizeof(peer->base));
	if (large)
		memcpy(unit, &wide, sizeof(wide));
	else
		memcpy(unit, &narrow, sizeof(narrow));
	return MPI_OK;
}
