/* SPDX-License-Identifier: BSD-3-Clause */
/* split.c - see shared.h: the communicators of ranks that share memory. */
#include <stdlib.h>

#include "windows/shared.h"

enum wish { WISH_NONE, WISH_SHARED, WISH_OTHER };

struct wish_of_rank {
	uint64_t id[2]; /* of the region; zeros: none */
	uint64_t wish;
};

/* The values are facts of the interfaces' headers. */
int shared_type(void)
{
	return mpi.abi == ABI_MPICH ? 1 : mpi.abi == ABI_STANDARD ? 221 : 0;
}
#define MPI_UNDEFINED (-32766) /* the same in all three */

int shared_split_behind(handle comm, int type, int key, handle info, void *made)
{
	return MPI_CALL(Comm_split_type, handle, int, int, handle, void *)(comm, type, key, info, made);
}

static bool is_same(const uint64_t a[2], const uint64_t b[2])
{
	return a[0] == b[0] && a[1] == b[1];
}

bool shared_groups(int size, const uint64_t (*regions)[2], const int *leaders, int *groups)
{
	static const uint64_t none[2];
	bool joined = false;

	for (int rank = 0; rank < size; rank++) {
		int first = rank;
		bool several = false;
		/* Numbers from `size` on are groups of the MPI library. */
		groups[rank] = leaders[rank] < 0 ? -1 : size + leaders[rank];
		if (leaders[rank] < 0 || is_same(regions[rank], none))
			continue;
		for (int other = 0; other < size; other++) {
			if (leaders[other] < 0 || !is_same(regions[other], regions[rank]))
				continue;
			several = several || leaders[other] != leaders[rank];
			first = other < first ? other : first;
		}
		if (several)
			groups[rank] = first;
		joined = joined || several;
	}
	return joined;
}

/* The rank in `comm` of the first member of this rank's group in the MPI library; -1 without a group. */
static int find_leader(handle group, int rank)
{
	int leader = rank;

	if (mpi_is_null_comm(group))
		return -1;
	if (MPI_CALL(Bcast, void *, int, handle, int, handle)(&leader, (int)sizeof(leader), mpi.byte, 0,
							      group) != MPI_OK)
		return rank;
	return leader;
}

/* Makes the communicators if regions join groups of the MPI library, of which this rank is in `*group`. */
static int join_groups(handle comm, int key, const struct wish_of_rank *all, int size, int rank,
		       handle *group)
{
	int leader = find_leader(*group, rank);
	uint64_t(*regions)[2] = window_room((size_t)size, sizeof(*regions), size);
	int *leaders = window_room((size_t)size, sizeof(*leaders), size);
	int *groups = window_room((size_t)size, sizeof(*groups), size);
	handle made = 0;
	int status = MPI_OK;

	for (int other = 0; other < size; other++) {
		regions[other][0] = all[other].id[0];
		regions[other][1] = all[other].id[1];
	}
	if (window_allgather(&leader, leaders, sizeof(leader), comm) &&
	    shared_groups(size, (const uint64_t(*)[2])regions, leaders, groups)) {
		int color = groups[rank] < 0 ? MPI_UNDEFINED : groups[rank];
		status = MPI_CALL(Comm_split, handle, int, int, handle *)(comm, color, key, &made);
		if (!mpi_is_null_comm(*group))
			(void)MPI_CALL(Comm_free, handle *)(group);
		*group = made;
	}
	free(groups);
	free(leaders);
	free(regions);
	return status;
}

int shared_split(handle comm, int type, int key, handle info, void *made)
{
	int size = 0;
	int rank = 0;
	int inter = 0;
	struct memory_place self = {.id = {0, 0}};

	if (windows_are_off() || memory_choice() != MEMORY_ON || mpi_is_null_comm(comm) ||
	    MPI_CALL(Comm_size, handle, int *)(comm, &size) != MPI_OK || size < 2 ||
	    MPI_CALL(Comm_rank, handle, int *)(comm, &rank) != MPI_OK ||
	    MPI_CALL(Comm_test_inter, handle, int *)(comm, &inter) != MPI_OK || inter != 0)
		return shared_split_behind(comm, type, key, info, made);
	(void)memory_find(NULL, 0, &self);
	/* A rank with MPI_UNDEFINED does not know which type the other ranks give. */
	struct wish_of_rank mine = {
		.id = {self.id[0], self.id[1]},
		.wish = type == MPI_UNDEFINED   ? WISH_NONE
			: type == shared_type() ? WISH_SHARED
						: WISH_OTHER,
	};
	struct wish_of_rank *all = window_room((size_t)size, sizeof(*all), size);
	bool valid = window_allgather(&mine, all, sizeof(mine), comm);
	bool wanted = false;
	for (int other = 0; other < size; other++) {
		valid = valid && all[other].wish != WISH_OTHER;
		wanted = wanted ||
			 (all[other].wish == WISH_SHARED && (all[other].id[0] | all[other].id[1]) != 0);
	}
	handle group = 0;
	int status = shared_split_behind(comm, type, key, info, valid && wanted ? &group : made);
	if (status == MPI_OK && valid && wanted) {
		status = join_groups(comm, key, all, size, rank, &group);
		window_store_handle(made, group);
	}
	free(all);
	return status;
}
