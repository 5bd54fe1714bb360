/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * record_collectives.c - collective operations of all ranks.
 *
 * An untimed barrier comes before each call, so that iteration `i` is the same call on all ranks
 * and begins at about the same time. The differences between the ranks' exits from the barrier are
 * part of the later ranks' time. The root of a broadcast is rank 0. Barriers themselves follow each
 * other directly.
 */
#include "record.h"

#include "collective.h"

static void open_group(struct subject *subject, int kind, size_t size, int window,
		       enum synchronization synchronization)
{
	struct group *group = measure_buffer(sizeof(*group));

	(void)window;
	(void)synchronization;
	*group = (struct group){.exchange = {.size = (int)size}};
	MPI_Comm_rank(MPI_COMM_WORLD, &group->exchange.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &group->ranks);
	group->exchange.buffer = measure_buffer((size_t)group->ranks * size);
	group->received = measure_buffer((size_t)group->ranks * size);
	*subject = (struct subject){
		.exchange = &group->exchange,
		.run = collectives[kind].run,
		.before = kind == BARRIER ? NULL : barrier,
		.messages = 1,
		.kept = true,
	};
	collective_verify(group, kind);
}

static void close_group(struct subject *subject)
{
	struct group *group = (struct group *)(void *)subject->exchange;

	free(group->received);
	free(group->exchange.buffer);
	free(group);
}

#define COLLECTIVE(its_name, its_kind, is_apart, its_multiple) \
	{ \
		.name = (its_name), .kind = (its_kind), .sample = "one call", .sizes = (is_apart), \
		.apart = (is_apart), .multiple = (its_multiple), .open = open_group, .close = close_group \
	}

const struct operation collective_operations[] = {
	COLLECTIVE("barrier", BARRIER, false, 1),    COLLECTIVE("bcast", BCAST, true, 1),
	COLLECTIVE("allgather", ALLGATHER, true, 1), COLLECTIVE("allreduce", ALLREDUCE, true, sizeof(double)),
	COLLECTIVE("alltoall", ALLTOALL, true, 1),   {.name = NULL},
};
