/* SPDX-License-Identifier: BSD-3-Clause */
/* steps.c - draws a step, and runs it with what goes on beside it. See steps.h. */
#include "steps.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *const collective_names[] = {
	"barrier",    "bcast",   "reduce",   "allreduce", "reduce_scatter", "reduce_scatter_block",
	"allgather",  "gather",  "scatter",  "alltoall",  "scan",           "exscan",
	"allgatherv", "gatherv", "scatterv", "alltoallv", "alltoallw",      NULL};

enum { COLLECTIVES = sizeof collective_names / sizeof *collective_names - 1 };
enum { MESSAGE_TAG = 5, HANDED_TAG = 6 };

void step_fail(const struct step *step, const char *format, ...)
{
	char text[400];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	fprintf(stderr, "wrong: %s: %s\n", step->text, text);
	fflush(NULL);
	_exit(1);
}

/* --- communicators -------------------------------------------------------------------------------- */

void communicators_make(struct communicators *made, MPI_Comm world)
{
	int rank, size;

	MPI_Comm_rank(world, &rank);
	MPI_Comm_size(world, &size);
	made->world = world;
	made->between = MPI_COMM_NULL;
	MPI_Comm_dup(world, &made->copy);
	MPI_Comm_dup(world, &made->messages);
	MPI_Comm_split(world, rank % 2, 0, &made->halves);
	MPI_Comm_split(world, 0, -rank, &made->reversed);
	MPI_Comm_split(world, rank, 0, &made->self);
	if (size > 1)
		MPI_Intercomm_create(made->halves, 0, made->messages, 1 - rank % 2, 7, &made->between);
}

void communicators_free(struct communicators *made)
{
	MPI_Comm *all[] = {&made->between, &made->halves,   &made->copy,
			   &made->self,    &made->reversed, &made->messages};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (*all[i] != MPI_COMM_NULL)
			MPI_Comm_free(all[i]);
}

/* A communicator that is freed after the step. */
static MPI_Comm make_fresh(const struct communicators *all, struct step *step, int rank, int size)
{
	MPI_Comm fresh;
	MPI_Group whole, part;
	MPI_Errhandler handler;
	int colour;

	step->group.is_own = true;
	switch (draw_below(&step->all, 3)) {
	case 0:
		step->group.name = "fresh copy";
		MPI_Comm_dup(all->world, &fresh);
		return fresh;
	case 1: /* of whatever parts, in whatever order */
		step->group.name = "fresh part";
		colour = (int)(mix(step->all.state, (uint64_t)rank) % 2);
		step->group.own = (uint64_t)colour;
		MPI_Comm_split(all->world, colour, (int)(mix(step->all.state, 100 + (uint64_t)rank) % 100),
			       &fresh);
		return fresh;
	default: /* without the last rank, which has one of its own */
		step->group.name = "fresh group";
		if (rank == size - 1) {
			step->group.own = 1;
			MPI_Comm_dup(all->self, &fresh);
			return fresh;
		}
		int last[1] = {size - 1};
		MPI_Comm_group(all->world, &whole);
		MPI_Group_excl(whole, 1, last, &part);
		MPI_Comm_create_group(all->world, part, 3, &fresh);
		MPI_Group_free(&whole);
		MPI_Group_free(&part);
		/* Unlike copies, this communicator inherits no error handler. */
		MPI_Comm_get_errhandler(all->world, &handler);
		MPI_Comm_set_errhandler(fresh, handler);
		MPI_Errhandler_free(&handler);
		return fresh;
	}
}

static void choose_group(const struct communicators *all, struct step *step, int choices)
{
	struct group *group = &step->group;
	uint64_t common = mix(step->seed, (uint64_t)step->number);
	int rank, size, choice = draw_below(&step->all, choices);

	MPI_Comm_rank(all->world, &rank);
	MPI_Comm_size(all->world, &size);
	*group = (struct group){.handle = all->world, .name = "world"};
	if (choice == 4 || choice == 5) {
		*group = (struct group){.handle = all->copy, .name = "copy"};
	} else if (choice == 6 || choice == 7) {
		*group = (struct group){.handle = all->halves, .name = "half", .own = (uint64_t)rank % 2};
	} else if (choice == 8) {
		*group = (struct group){.handle = all->reversed, .name = "reversed"};
	} else if (choice == 9) {
		*group = (struct group){.handle = all->self, .name = "self", .own = (uint64_t)rank};
	} else if (choice == 10 || choice == 11) {
		group->handle = make_fresh(all, step, rank, size);
	} else if (choice >= 12 && size > 1) {
		*group = (struct group){.handle = all->between,
					.name = "between halves",
					.is_inter = true,
					.own = (uint64_t)rank % 2};
		group->remote = mix(common, 1 - group->own);
	}
	group->own = mix(common, group->own);
	MPI_Comm_rank(group->handle, &group->rank);
	MPI_Comm_size(group->handle, &group->size);
	group->sources = group->size;
	if (group->is_inter)
		MPI_Comm_remote_size(group->handle, &group->sources);
	else
		group->remote = group->own;
}

/* --- messages beside the collective --------------------------------------------------------------- */

/* Each rank gets a message from the rank before it, which is sent before or after the collective. */
struct messages {
	MPI_Comm handle;
	MPI_Request requests[2];
	unsigned char *out, *in;
	int bytes, to, from;
	bool late;
};

static void send_message(struct messages *messages)
{
	MPI_Isend(messages->out, messages->bytes, MPI_BYTE, messages->to, MESSAGE_TAG, messages->handle,
		  &messages->requests[1]);
}

static void messages_begin(struct messages *messages, struct step *step, MPI_Comm apart, bool any_tag)
{
	const struct group *group = &step->group;
	int rank = group->rank, size = group->size;
	bool same = !group->is_inter && draw_below(&step->all, 2);

	*messages = (struct messages){.handle = same ? group->handle : apart};
	if (!same) {
		MPI_Comm_rank(apart, &rank);
		MPI_Comm_size(apart, &size);
	}
#ifdef MPICH_VERSION
	/* In MPICH 5.0.2, a receive from the own rank with any tag gets what a collective operation sends
	 * there. */
	any_tag = any_tag && size > 1;
#endif
	messages->bytes = (int[]){1, 9000, 300000}[draw_below(&step->all, 3)];
	messages->late = draw_below(&step->all, 2);
	messages->to = (rank + 1) % size;
	messages->from = (rank + size - 1) % size;
	messages->out = malloc((size_t)messages->bytes);
	messages->in = calloc(1, (size_t)messages->bytes);
	memset(messages->out, rank + (int)step->number, (size_t)messages->bytes);
	/* A receive of any tag or from any source must not get a message of a collective operation. */
	MPI_Irecv(messages->in, messages->bytes, MPI_BYTE, any_tag ? messages->from : MPI_ANY_SOURCE,
		  any_tag ? MPI_ANY_TAG : MESSAGE_TAG, messages->handle, &messages->requests[0]);
	if (!messages->late)
		send_message(messages);
}

static void messages_end(struct messages *messages, const struct step *step)
{
	if (messages->late)
		send_message(messages);
	MPI_Waitall(2, messages->requests, MPI_STATUSES_IGNORE);
	for (int i = 0; i < messages->bytes; i++)
		if (messages->in[i] != (unsigned char)(messages->from + step->number))
			step_fail(step, "byte %d of a message beside it: expected %d, got %d", i,
				  (unsigned char)(messages->from + step->number), messages->in[i]);
	free(messages->out);
	free(messages->in);
}

/* One rank goes into the collective with a long message under way, and another rank does so only when it has
 * got the message. So the first rank must carry its message on while it waits in the collective. */
static void *hand_over(const struct step *step, MPI_Request *request, int from, int to)
{
	enum { BYTES = 1 << 20 };
	const struct group *group = &step->group;
	unsigned char *bytes;

	*request = MPI_REQUEST_NULL;
	if (group->rank != from && group->rank != to)
		return NULL;
	bytes = malloc(BYTES);
	if (group->rank == from) {
		memset(bytes, (int)step->number, BYTES);
		MPI_Isend(bytes, BYTES, MPI_BYTE, to, HANDED_TAG, group->handle, request);
		return bytes;
	}
	MPI_Recv(bytes, BYTES, MPI_BYTE, from, HANDED_TAG, group->handle, MPI_STATUS_IGNORE);
	for (int i = 0; i < BYTES; i++)
		if (bytes[i] != (unsigned char)step->number)
			step_fail(step, "byte %d of a message of a rank that waits in it is wrong", i);
	return bytes;
}

static void delay(struct step *step)
{
	struct timespec time = {.tv_nsec = draw_below(&step->one, 2000000)};
	volatile double work = 1;

	if (draw_below(&step->one, 2) == 0) {
		nanosleep(&time, NULL);
		return;
	}
	for (long i = 0; i < time.tv_nsec / 4; i++)
		work = work * 1.0000001;
}

/* --- steps ---------------------------------------------------------------------------------------- */

static const char *choose_collective(struct step *step, const char *only)
{
	int first = draw_below(&step->all, COLLECTIVES);

	for (int i = first; only != NULL; i = (i + 1) % COLLECTIVES) {
		const char *name = collective_names[i], *found = only;
		size_t length = strlen(name);

		while ((found = strstr(found, name)) != NULL) {
			if ((found == only || found[-1] == ',') &&
			    (found[length] == ',' || found[length] == '\0'))
				return name;
			found += length;
		}
	}
	return collective_names[first];
}

static int choose_count(struct step *step, size_t most)
{
	/* Long ones are seldom, because they take long; the last is for one step in fifty. */
	static const size_t sizes[] = {0, 1, 24, 56, 56, 2048, 2048, 4096, 65536, 1 << 20};
	int choice = draw_below(&step->all, 50);
	size_t unit = (size_t)step->type.units * kind_size(step->type.kinds[0]), bytes;

	choice = choice < 45 ? choice / 6 : choice < 49 ? 8 : 9;
	bytes = sizes[choice];
	if (bytes > most)
		bytes = most;
	if (bytes < 2)
		return (int)bytes; /* elements */
	return (int)(bytes / unit) + draw_below(&step->all, 4);
}

static void describe(struct step *step, const char *name, const char *beside)
{
	const struct group *group = &step->group;
	const char *operation = step->operation.name != NULL ? step->operation.name : "no operation";

	snprintf(step->text, STEP_TEXT,
		 "seed %llu, step %ld: %s of %d x %s, %s, on %s, rank %d of %d, root %d%s%s",
		 (unsigned long long)step->seed, step->number, name, step->count, step->type.name, operation,
		 group->name, group->rank, group->size, step->root, step->in_place ? ", in place" : "",
		 beside);
}

void step_run(const struct communicators *all, const struct limits *limits, uint64_t seed, long number,
	      char *text)
{
	struct step step = {.seed = seed, .number = number, .text = text};
	struct group *group = &step.group;
	struct messages messages;
	MPI_Request request;
	void *handed = NULL;
	int world_rank, beside, peers[2] = {0, 0};

	MPI_Comm_rank(all->world, &world_rank);
	step.all.state = mix(seed, (uint64_t)number);
	step.one.state = mix(step.all.state, 1000 + (uint64_t)world_rank);
	const char *name = choose_collective(&step, limits->only);
	bool is_scan = strcmp(name, "scan") == 0 || strcmp(name, "exscan") == 0;
	bool is_barrier = strcmp(name, "barrier") == 0;

	snprintf(text, STEP_TEXT, "seed %llu, step %ld: a communicator for %s", (unsigned long long)seed,
		 number, name);
	choose_group(all, &step, limits->world ? 1 : is_scan ? 12 : 14); /* no scan between groups */
	type_make(&step.type, &step.all);
	if (is_reducing(name))
		operation_make(&step.operation, &step.type, &step.all);
	if (!limits->faults && is_known_fault(&step, name)) {
		operation_free(&step.operation);
		type_free(&step.type);
		type_plain(&step.type);
		if (is_reducing(name))
			operation_make(&step.operation, &step.type, &step.all);
	}
	step.may_flatten = limits->faults || may_flatten(&step, name);
	step.count = choose_count(&step, limits->bytes);
	step.in_place = draw_below(&step.all, 3) == 0 && !group->is_inter &&
			(limits->faults || may_be_in_place(&step, name));
	beside = draw_below(&step.all, 8); /* 0 and 1: messages; 2: a message that is handed over */
	step.root = (int)(draw_word(&step.all) >> 20 & 0xffff);
	/* The root is in the group that has the greater number. */
	step.root %= group->is_inter && group->own < group->remote ? group->sources : group->size;
	if (beside == 2 && !group->is_inter && group->size > 1) {
		peers[0] = draw_below(&step.all, group->size);
		peers[1] = (peers[0] + 1 + draw_below(&step.all, group->size - 1)) % group->size;
	}
	describe(&step, name,
		 peers[0] != peers[1] ? ", a message handed over"
		 : beside < 2         ? ", messages beside"
				      : "");
	if (draw_below(&step.one, 16) == 0)
		delay(&step);
	if (beside < 2)
		messages_begin(&messages, &step, all->messages, !is_barrier && draw_below(&step.all, 2));
	if (peers[0] != peers[1])
		handed = hand_over(&step, &request, peers[0], peers[1]);
	if (is_reducing(name))
		run_reducing(&step, name);
	else
		run_moving(&step, name, limits->one_clock);
	if (peers[0] != peers[1])
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	free(handed);
	if (beside < 2)
		messages_end(&messages, &step);
	if (is_reducing(name))
		operation_free(&step.operation);
	type_free(&step.type);
	if (group->is_own)
		MPI_Comm_free(&group->handle);
}
