/* SPDX-License-Identifier: BSD-3-Clause */
/* reducing.c - the collective operations that combine values. */
#include "steps.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 64 };

static const char *const names[] = {"reduce", "allreduce", "reduce_scatter", "reduce_scatter_block", "scan",
				    "exscan", NULL};

bool is_reducing(const char *name)
{
	for (const char *const *each = names; *each != NULL; each++)
		if (strcmp(*each, name) == 0)
			return true;
	return false;
}

/* The sources of the result, in the order of their ranks. */
static const uint64_t *sources_of(const struct group *group, uint64_t *sources)
{
	for (int i = 0; i < group->sources; i++)
		sources[i] = source_of(group->remote, i);
	return sources;
}

/* The send buffer and the receive buffer, or with MPI_IN_PLACE only the latter, with the same input. */
static const void *make_buffers(struct step *step, struct buffer *send, struct buffer *receive, int count)
{
	struct buffer *input = step->in_place ? receive : send;

	buffer_make(send, step, "send buffer", &step->type, step->in_place ? 0 : count);
	buffer_make(receive, step, "receive buffer", &step->type, count);
	buffer_put(input, 0, count, source_of(step->group.own, step->group.rank), 0, true);
	return step->in_place ? MPI_IN_PLACE : buffer_address(send);
}

static void run_allreduce(struct step *step)
{
	struct group *group = &step->group;
	struct buffer send, receive;
	uint64_t sources[RANKS_MAX];
	const void *from = make_buffers(step, &send, &receive, step->count);

	buffer_expect(&receive, 0, step->count, sources_of(group, sources), group->sources, 0);
	MPI_Allreduce(from, buffer_address(&receive), step->count, step->type.handle, step->operation.handle,
		      group->handle);
	buffer_check(&send);
	buffer_check(&receive);
}

int root_of(const struct step *step, bool *is_root)
{
	const struct group *group = &step->group;

	*is_root = group->rank == step->root;
	if (!group->is_inter)
		return step->root;
	if (group->own < group->remote) {
		*is_root = false;
		return step->root;
	}
	return *is_root ? MPI_ROOT : MPI_PROC_NULL;
}

static void run_reduce(struct step *step)
{
	struct group *group = &step->group;
	struct buffer send, receive;
	uint64_t sources[RANKS_MAX];
	bool is_root;
	int root = root_of(step, &is_root);
	const void *from;

	step->in_place = step->in_place && is_root;
	from = make_buffers(step, &send, &receive, step->count);
	if (is_root)
		buffer_expect(&receive, 0, step->count, sources_of(group, sources), group->sources, 0);
	MPI_Reduce(from, is_root || draw_below(&step->one, 2) ? buffer_address(&receive) : NULL, step->count,
		   step->type.handle, step->operation.handle, root, group->handle);
	buffer_check(&send);
	buffer_check(&receive);
}

/* Cuts `total` into drawn parts, some of which may be empty. */
static void cut(uint64_t seed, int total, int *counts, int parts)
{
	struct draw draw = {mix(seed, 77)};

	for (int i = 0; i < parts - 1; i++) {
		counts[i] = draw_below(&draw, 4) == 0 ? 0 : draw_below(&draw, total + 1) / (i + 1);
		if (counts[i] > total)
			counts[i] = total;
		total -= counts[i];
	}
	counts[parts - 1] = total;
}

static void run_reduce_scatter(struct step *step, bool in_blocks)
{
	struct group *group = &step->group;
	struct buffer send, receive;
	uint64_t sources[RANKS_MAX];
	int counts[RANKS_MAX], before = 0, mine;
	/* Both groups of an intercommunicator have the same number of elements. */
	int total = step->count * group->sources * (group->is_inter ? group->size : 1);
	const void *from;

	if (in_blocks)
		for (int i = 0; i < group->size; i++)
			counts[i] = total / group->size;
	else
		cut(group->own, total, counts, group->size);
	for (int i = 0; i < group->rank; i++)
		before += counts[i];
	mine = counts[group->rank];
	from = make_buffers(step, &send, &receive, total);
	/* In place, the standard does not say what is left behind the result. */
	if (step->in_place)
		buffer_ignore(&receive, 0, total);
	buffer_expect(&receive, 0, mine, sources_of(group, sources), group->sources,
		      (long)before * step->type.units);
	if (in_blocks)
		MPI_Reduce_scatter_block(from, buffer_address(&receive), mine, step->type.handle,
					 step->operation.handle, group->handle);
	else
		call_reduce_scatter(step, from, buffer_address(&receive), counts);
	buffer_check(&send);
	buffer_check(&receive);
}

static void run_scan(struct step *step, bool exclusive)
{
	struct group *group = &step->group;
	struct buffer send, receive;
	uint64_t sources[RANKS_MAX];
	const void *from = make_buffers(step, &send, &receive, step->count);
	int number = group->rank + !exclusive;

	sources_of(group, sources);
	if (number == 0) /* the receive buffer of the first rank is undefined */
		buffer_ignore(&receive, 0, step->count);
	else
		buffer_expect(&receive, 0, step->count, sources, number, 0);
	if (exclusive)
		MPI_Exscan(from, buffer_address(&receive), step->count, step->type.handle,
			   step->operation.handle, group->handle);
	else
		MPI_Scan(from, buffer_address(&receive), step->count, step->type.handle,
			 step->operation.handle, group->handle);
	buffer_check(&send);
	buffer_check(&receive);
}

void run_reducing(struct step *step, const char *name)
{
	if (strcmp(name, "allreduce") == 0)
		run_allreduce(step);
	else if (strcmp(name, "reduce") == 0)
		run_reduce(step);
	else if (strncmp(name, "reduce_scatter", 14) == 0)
		run_reduce_scatter(step, name[14] != '\0');
	else
		run_scan(step, strcmp(name, "exscan") == 0);
}
