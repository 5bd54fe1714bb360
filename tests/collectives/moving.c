/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * moving.c - the barrier, and the collective operations that only move data.
 *
 * Each rank draws how its own data lie: in elements of the step's type, or as the same values of the
 * predefined type one after the other. Blocks of the variants with counts (v) have drawn lengths, places and
 * gaps. The blocks of alltoallw have datatypes of their own.
 */
#include "steps.h"

#include <string.h>
#include <time.h>

enum { RANKS_MAX = 64, TIMES_TAG = 99 };

/* How data lie at this rank. */
struct layout {
	struct type flat;
	const struct type *type;
	int scale; /* elements of `type` for one of the step's type */
};

static void layout_draw(struct layout *layout, struct step *step)
{
	*layout = (struct layout){.type = &step->type, .scale = 1};
	if (!step->may_flatten || step->type.basic == MPI_DATATYPE_NULL || draw_below(&step->one, 2) == 0)
		return;
	type_flat(&step->type, &layout->flat);
	layout->type = &layout->flat;
	layout->scale = step->type.units;
}

/* Blocks in a buffer, in elements of the layout's type. */
struct blocks {
	struct counts at;
	int end;
};

/* The length of a block, in elements of the step's type. */
static int count_of(const struct step *step, uint64_t source, bool varies)
{
	uint64_t hash = mix(source, 5);

	if (!varies)
		return step->count;
	return (int[]){0, step->count, step->count / 2, step->count + (int)(hash >> 8 & 3)}[hash & 3];
}

/* Places blocks, whose `counts` are in elements of the step's type: one after the other, or anywhere. */
static void place(struct blocks *blocks, struct step *step, const struct layout *layout, bool anywhere)
{
	int order[RANKS_MAX];

	for (int i = 0; i < blocks->at.number; i++) {
		int other = anywhere ? draw_below(&step->one, i + 1) : i;

		order[i] = order[other];
		order[other] = i;
	}
	blocks->end = 0;
	for (int i = 0; i < blocks->at.number; i++) {
		int block = order[i];

		blocks->at.counts[block] *= layout->scale;
		blocks->end += anywhere ? draw_below(&step->one, 3) : 0;
		blocks->at.places[block] = blocks->end;
		blocks->end += blocks->at.counts[block];
	}
}

static void put_block(struct buffer *buffer, const struct blocks *blocks, int block, uint64_t source,
		      bool is_input)
{
	buffer_put(buffer, blocks->at.places[block], blocks->at.counts[block], source, 0, is_input);
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* No rank may leave the barrier before the last one entered. Rank 0 compares the times. */
static void run_barrier(struct step *step, bool one_clock)
{
	const struct group *group = &step->group;
	double times[2], last_entry, others[2];

	times[0] = seconds();
	MPI_Barrier(group->handle);
	times[1] = seconds();
	if (group->is_inter || !one_clock)
		return;
	if (group->rank > 0) {
		MPI_Send(times, 2, MPI_DOUBLE, 0, TIMES_TAG, group->handle);
		return;
	}
	last_entry = times[0];
	for (int i = 1; i < group->size; i++) {
		MPI_Recv(others, 2, MPI_DOUBLE, i, TIMES_TAG, group->handle, MPI_STATUS_IGNORE);
		last_entry = others[0] > last_entry ? others[0] : last_entry;
		times[1] = others[1] < times[1] ? others[1] : times[1];
	}
	if (times[1] < last_entry)
		step_fail(step, "a rank left the barrier %.9f s before the last one entered it",
			  last_entry - times[1]);
}

static void run_bcast(struct step *step)
{
	const struct group *group = &step->group;
	struct layout layout;
	struct buffer buffer;
	bool is_root;
	int root = root_of(step, &is_root);
	int count;

	layout_draw(&layout, step);
	count = step->count * layout.scale;
	buffer_make(&buffer, step, "buffer", layout.type, count);
	if (root != MPI_PROC_NULL)
		buffer_put(&buffer, 0, count, source_of(is_root ? group->own : group->remote, step->root), 0,
			   is_root);
	MPI_Bcast(buffer_address(&buffer), count, layout.type->handle, root, group->handle);
	buffer_check(&buffer);
}

/* Receives a block from each source: allgather, and gather at its root. */
static void run_gather(struct step *step, bool to_all, bool varies)
{
	struct group *group = &step->group;
	struct layout layouts[2]; /* of what is sent, of what is received */
	struct buffer send, receive;
	struct blocks blocks = {.at = {.number = group->sources}};
	uint64_t own = source_of(group->own, group->rank);
	bool is_root = true;
	int root = to_all ? 0 : root_of(step, &is_root);
	bool sends = to_all || !group->is_inter || group->own < group->remote;
	const void *from = MPI_IN_PLACE;
	int count;

	layout_draw(&layouts[0], step);
	layout_draw(&layouts[1], step);
	step->in_place = step->in_place && is_root;
	count = count_of(step, own, varies) * layouts[0].scale;
	for (int i = 0; i < group->sources; i++)
		blocks.at.counts[i] = count_of(step, source_of(group->remote, i), varies);
	place(&blocks, step, &layouts[1], varies);
	buffer_make(&send, step, "send buffer", layouts[0].type, sends && !step->in_place ? count : 0);
	buffer_make(&receive, step, "receive buffer", layouts[1].type, is_root ? blocks.end : 0);
	if (!step->in_place)
		from = buffer_address(&send);
	if (sends && !step->in_place)
		buffer_put(&send, 0, count, own, 0, true);
	for (int i = 0; is_root && i < group->sources; i++)
		put_block(&receive, &blocks, i, source_of(group->remote, i),
			  step->in_place && i == group->rank);

	MPI_Datatype types[2] = {layouts[0].type->handle, layouts[1].type->handle};
	void *to = buffer_address(&receive);

	if (to_all && varies)
		call_allgatherv(step, from, count, types[0], to, &blocks.at, types[1]);
	else if (to_all)
		MPI_Allgather(from, count, types[0], to, blocks.at.counts[0], types[1], group->handle);
	else if (varies)
		call_gatherv(step, from, count, types[0], to, &blocks.at, types[1], root);
	else
		MPI_Gather(from, count, types[0], to, blocks.at.counts[0], types[1], root, group->handle);
	buffer_check(&send);
	buffer_check(&receive);
}

static void run_scatter(struct step *step, bool varies)
{
	struct group *group = &step->group;
	struct layout layouts[2];
	struct buffer send, receive;
	struct blocks blocks = {.at = {.number = group->sources}};
	bool is_root;
	int root = root_of(step, &is_root);
	bool receives = !group->is_inter || group->own < group->remote;
	uint64_t source = source_to(group->remote, step->root, group->rank);
	void *to = MPI_IN_PLACE;
	int count;

	layout_draw(&layouts[0], step);
	layout_draw(&layouts[1], step);
	step->in_place = step->in_place && is_root;
	receives = receives && !step->in_place;
	for (int i = 0; i < group->sources; i++)
		blocks.at.counts[i] = count_of(step, source_to(group->own, step->root, i), varies);
	place(&blocks, step, &layouts[0], varies);
	count = count_of(step, source, varies) * layouts[1].scale;
	buffer_make(&send, step, "send buffer", layouts[0].type, is_root ? blocks.end : 0);
	buffer_make(&receive, step, "receive buffer", layouts[1].type, receives ? count : 0);
	for (int i = 0; is_root && i < group->sources; i++)
		put_block(&send, &blocks, i, source_to(group->own, step->root, i), true);
	if (receives)
		buffer_put(&receive, 0, count, source, 0, false);
	if (!step->in_place)
		to = buffer_address(&receive);
	if (varies)
		call_scatterv(step, buffer_address(&send), &blocks.at, layouts[0].type->handle, to, count,
			      layouts[1].type->handle, root);
	else
		MPI_Scatter(buffer_address(&send), blocks.at.counts[0], layouts[0].type->handle, to, count,
			    layouts[1].type->handle, root, group->handle);
	buffer_check(&send);
	buffer_check(&receive);
}

/* The length of the block from one rank to another. In place, both directions are equally long. */
static int pair_count(const struct step *step, uint64_t group, int from, int to, bool varies)
{
	bool swapped = step->in_place && from > to;

	return count_of(step, swapped ? source_to(group, to, from) : source_to(group, from, to), varies);
}

static void run_alltoall(struct step *step, bool varies, bool by_types)
{
	struct group *group = &step->group;
	struct layout layouts[2];
	struct buffer send, receive;
	struct blocks blocks[2] = {{.at = {.number = group->sources}}, {.at = {.number = group->sources}}};
	const void *from = MPI_IN_PLACE;

	for (int side = 0; side < 2; side++) {
		layout_draw(&layouts[side], step);
		for (int i = 0; i < group->sources; i++)
			blocks[side].at.counts[i] =
				side == 0 ? pair_count(step, group->own, group->rank, i, varies)
					  : pair_count(step, group->remote, i, group->rank, varies);
		place(&blocks[side], step, &layouts[side],
		      varies && (!by_types || may_place(step, "alltoallw")));
	}
	buffer_make(&send, step, "send buffer", layouts[0].type, step->in_place ? 0 : blocks[0].end);
	buffer_make(&receive, step, "receive buffer", layouts[1].type, blocks[1].end);
	/* In place, what is sent is where the other rank's block is expected afterwards. */
	for (int i = 0; i < group->sources; i++)
		put_block(step->in_place ? &receive : &send, &blocks[step->in_place], i,
			  source_to(group->own, group->rank, i), true);
	for (int i = 0; i < group->sources; i++)
		put_block(&receive, &blocks[1], i, source_to(group->remote, i, group->rank), false);
	if (!step->in_place)
		from = buffer_address(&send);
	if (by_types)
		call_alltoallw(step, from, &blocks[0].at, layouts[0].type, buffer_address(&receive),
			       &blocks[1].at, layouts[1].type);
	else if (varies)
		call_alltoallv(step, from, &blocks[0].at, layouts[0].type->handle, buffer_address(&receive),
			       &blocks[1].at, layouts[1].type->handle);
	else
		MPI_Alltoall(from, blocks[0].at.counts[0], layouts[0].type->handle, buffer_address(&receive),
			     blocks[1].at.counts[0], layouts[1].type->handle, group->handle);
	buffer_check(&send);
	buffer_check(&receive);
}

void run_moving(struct step *step, const char *name, bool one_clock)
{
	bool by_types = strcmp(name, "alltoallw") == 0;
	bool varies = by_types || name[strlen(name) - 1] == 'v';

	if (strcmp(name, "barrier") == 0)
		run_barrier(step, one_clock);
	else if (strcmp(name, "bcast") == 0)
		run_bcast(step);
	else if (strncmp(name, "allgather", 9) == 0)
		run_gather(step, true, varies);
	else if (strncmp(name, "gather", 6) == 0)
		run_gather(step, false, varies);
	else if (strncmp(name, "scatter", 7) == 0)
		run_scatter(step, varies);
	else
		run_alltoall(step, varies, by_types);
}
