/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * steps.c - see steps.h. Each rank keeps a model of all ranks' windows. In a step, each rank is the origin of
 * one operation, and the target of one. All draw the same numbers, so all know the result.
 */
#include "steps.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "elements.h"

enum { RANKS_MAX = 8, BYTES_MAX = 20000, ELEMENTS_MAX = 40 };
enum action { PUT, GET, ACCUMULATE, GET_ACCUMULATE, FETCH_AND_OP, COMPARE_AND_SWAP, ACTIONS };
static const char *const action_names[] = {
	"put", "get", "accumulate", "get_accumulate", "fetch_and_op", "compare_and_swap"};
enum mode { FENCE, FENCE_ASSERTED, PSCW, LOCK, LOCK_ALL, MODES };
static const char *const mode_names[] = {"fence", "fence with assertions", "pscw", "lock", "lock_all"};
enum origin_of_memory { ALLOCATED, FROM_ALLOC_MEM, FROM_MALLOC, MEMORIES };
static const char *const memory_names[] = {"MPI_Win_allocate", "MPI_Alloc_mem", "malloc"};

static int me;
static int size;
static struct {
	unsigned char bytes[BYTES_MAX];
	int length;
	int unit;
} model[RANKS_MAX];
static unsigned char *own;
static MPI_Win window;
static bool sound; /* leave out what Open MPI itself does wrong */
static char description[600];

void wrong(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fprintf(stderr, "wrong: rank %d: %s: ", me, description);
	vfprintf(stderr, format, arguments);
	fprintf(stderr, "\n");
	va_end(arguments);
	_exit(1);
}

void describe(const char *format, ...)
{
	va_list arguments;

	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	va_start(arguments, format);
	vsnprintf(description, sizeof(description), format, arguments);
	va_end(arguments);
}

void steps_stuck(int number)
{
	(void)number;
	dprintf(STDERR_FILENO, "stuck: rank %d: %s\n", me, description);
	_exit(1);
}

/* --- one operation -------------------------------------------------------------------------------- */

struct operation {
	enum action action;
	bool request;
	int target;
	struct element element;
	int elements;
	MPI_Op op;
	const char *op_name;
	struct layout at_origin;
	struct layout at_target;
	struct layout at_result;
	unsigned char *origin;
	unsigned char *result;
	unsigned char *expected;
	unsigned char compare[16];
	int disp;
};

/* The address that MPI gets. */
static unsigned char *first_of(unsigned char *buffer, const struct layout *layout)
{
	return buffer + layout->before;
}

static void draw_buffer(const struct operation *operation, const struct layout *layout, unsigned char *buffer,
			struct draw *draw)
{
	memset(buffer, 0x5a, layout->bytes);
	for (int i = 0; i < layout->elements; i++)
		element_draw(&operation->element, draw, first_of(buffer, layout) + layout->offsets[i]);
}

/* Draws until the target's elements lie in its window. */
static void draw_place(struct operation *operation, struct draw *draw)
{
	const struct layout *layout = &operation->at_target;
	int unit = model[operation->target].unit;
	int length = model[operation->target].length;
	int lowest = ((int)layout->before + unit - 1) / unit;
	int last = length - (int)(layout->bytes - layout->before);

	if (last < lowest * unit) {
		fprintf(stderr, "a window of %d bytes is too short for the test\n", length);
		_exit(2);
	}
	operation->disp = lowest + draw_below(draw, (last - lowest * unit) / unit + 1);
	/* Mostly at a multiple of the element's size, as programs do. */
	while (draw_below(draw, 8) != 0 && operation->disp > lowest &&
	       (size_t)(operation->disp * unit) % operation->element.size != 0)
		operation->disp--;
}

static struct operation draw_operation(int rank, int shift, uint64_t seed, uint64_t step)
{
	struct draw draw = draw_from(seed, step, (uint64_t)rank);
	struct operation operation = {
		.action = (enum action)draw_below(&draw, ACTIONS),
		.request = draw_below(&draw, 3) == 0,
		.target = (rank + shift) % size,
		.element = element_at(draw_below(&draw, element_count)),
	};
	bool single = operation.action >= FETCH_AND_OP;

	while (operation.action == COMPARE_AND_SWAP &&
	       (operation.element.class == FLOATING || operation.element.class == COMPLEX ||
		operation.element.class == PAIR || operation.element.class == CHARACTERS))
		operation.element = element_at(draw_below(&draw, element_count));
	operation.elements = single ? 1 : 1 + draw_below(&draw, ELEMENTS_MAX);
	do
		operation.op = element_op(&operation.element, &draw, &operation.op_name);
	while (operation.op == MPI_NO_OP && operation.action == ACCUMULATE);
	bool plain = single || draw_below(&draw, 2) == 0;
	operation.at_origin = layout_draw(&operation.element, operation.elements, plain, &draw);
	operation.at_target = layout_draw(&operation.element, operation.elements, plain, &draw);
	operation.at_result = layout_draw(&operation.element, operation.elements, plain, &draw);
	draw_place(&operation, &draw);
	if (sound && (operation.element.size > 8 ||
		      (size_t)(operation.disp * model[operation.target].unit) % operation.element.size != 0))
		operation.action = single || draw_below(&draw, 2) == 0 ? PUT : GET;
	operation.origin = malloc(operation.at_origin.bytes);
	operation.result = malloc(operation.at_result.bytes);
	operation.expected = malloc(operation.at_result.bytes);
	draw_buffer(&operation, &operation.at_origin, operation.origin, &draw);
	memset(operation.result, 0x77, operation.at_result.bytes);
	memset(operation.expected, 0x77, operation.at_result.bytes);
	element_draw(&operation.element, &draw, operation.compare);
	return operation;
}

static void free_operation(struct operation *operation)
{
	layout_free(&operation->at_origin);
	layout_free(&operation->at_target);
	layout_free(&operation->at_result);
	free(operation->origin);
	free(operation->result);
	free(operation->expected);
}

/* --- the model ------------------------------------------------------------------------------------ */

static void reduce_element(const struct operation *operation, const unsigned char *from, unsigned char *to)
{
	_Alignas(16) unsigned char operand[32];
	_Alignas(16) unsigned char value[32];

	if (operation->op == MPI_NO_OP)
		return;
	if (operation->op == MPI_REPLACE) {
		memcpy(to, from, operation->element.size);
		return;
	}
	memcpy(operand, from, operation->element.size);
	memcpy(value, to, operation->element.size);
	MPI_Reduce_local(operand, value, 1, operation->element.type, operation->op);
	memcpy(to, value, operation->element.size);
}

static void apply_element(struct operation *operation, int i)
{
	size_t bytes = operation->element.size;
	size_t at = (size_t)((ptrdiff_t)operation->disp * model[operation->target].unit +
			     operation->at_target.offsets[i]);
	unsigned char *target = model[operation->target].bytes + at;
	const unsigned char *origin =
		first_of(operation->origin, &operation->at_origin) + operation->at_origin.offsets[i];
	unsigned char *result =
		first_of(operation->expected, &operation->at_result) + operation->at_result.offsets[i];

	if (element_is_delicate(&operation->element) && operation->action != PUT)
		element_draw(&operation->element, &(struct draw){at}, target);
	if (operation->action != PUT && operation->action != ACCUMULATE)
		memcpy(result, target, bytes);
	switch (operation->action) {
	case PUT:
		memcpy(target, origin, bytes);
		break;
	case GET:
		break;
	case COMPARE_AND_SWAP:
		if (memcmp(target, operation->compare, bytes) == 0)
			memcpy(target, origin, bytes);
		break;
	default:
		reduce_element(operation, origin, target);
		break;
	}
}

static void apply_to_model(struct operation *operation)
{
	for (int i = 0; i < operation->elements; i++)
		apply_element(operation, i);
}

/* --- calls ---------------------------------------------------------------------------------------- */

static void start(const struct operation *o, MPI_Request *request)
{
	void *origin = first_of(o->origin, &o->at_origin);
	void *result = first_of(o->result, &o->at_result);
	const struct layout *from = &o->at_origin;
	const struct layout *to = &o->at_target;
	const struct layout *back = &o->at_result;

	*request = MPI_REQUEST_NULL;
	switch (o->action) {
	case PUT:
		if (o->request)
			MPI_Rput(origin, from->count, from->type, o->target, o->disp, to->count, to->type,
				 window, request);
		else
			MPI_Put(origin, from->count, from->type, o->target, o->disp, to->count, to->type,
				window);
		break;
	case GET:
		if (o->request)
			MPI_Rget(result, back->count, back->type, o->target, o->disp, to->count, to->type,
				 window, request);
		else
			MPI_Get(result, back->count, back->type, o->target, o->disp, to->count, to->type,
				window);
		break;
	case ACCUMULATE:
		if (o->request)
			MPI_Raccumulate(origin, from->count, from->type, o->target, o->disp, to->count,
					to->type, o->op, window, request);
		else
			MPI_Accumulate(origin, from->count, from->type, o->target, o->disp, to->count,
				       to->type, o->op, window);
		break;
	case GET_ACCUMULATE:
		if (o->request)
			MPI_Rget_accumulate(origin, from->count, from->type, result, back->count, back->type,
					    o->target, o->disp, to->count, to->type, o->op, window, request);
		else
			MPI_Get_accumulate(origin, from->count, from->type, result, back->count, back->type,
					   o->target, o->disp, to->count, to->type, o->op, window);
		break;
	case FETCH_AND_OP:
		MPI_Fetch_and_op(origin, result, o->element.type, o->target, o->disp, o->op, window);
		break;
	default:
		MPI_Compare_and_swap(origin, o->compare, result, o->element.type, o->target, o->disp, window);
		break;
	}
}

static void run_operation(struct operation *operation, enum mode mode)
{
	MPI_Request request;

	/* Requests are only for passive targets. */
	operation->request = operation->request && mode >= LOCK;
	start(operation, &request);
	if (request != MPI_REQUEST_NULL)
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	else if (operation->request && operation->action < FETCH_AND_OP)
		wrong("no request");
}

/* --- synchronization ------------------------------------------------------------------------------ */

static MPI_Group group_of(int rank)
{
	MPI_Group all;
	MPI_Group one;

	MPI_Win_get_group(window, &all);
	MPI_Group_incl(all, 1, &rank, &one);
	MPI_Group_free(&all);
	return one;
}

static void run_in_epoch(struct operation *operation, enum mode mode, int source, struct draw *draw)
{
	MPI_Group targets;
	MPI_Group origins;
	int done = 0;

	switch (mode) {
	case FENCE:
		MPI_Win_fence(0, window);
		run_operation(operation, mode);
		MPI_Win_fence(0, window);
		break;
	case FENCE_ASSERTED:
		MPI_Win_fence(MPI_MODE_NOPRECEDE, window);
		run_operation(operation, mode);
		MPI_Win_fence(MPI_MODE_NOSUCCEED | MPI_MODE_NOSTORE, window);
		break;
	case PSCW:
		targets = group_of(operation->target);
		origins = group_of(source);
		MPI_Win_post(origins, 0, window);
		MPI_Win_start(targets, 0, window);
		run_operation(operation, mode);
		MPI_Win_complete(window);
		while (draw_below(draw, 2) == 0 && !done)
			MPI_Win_test(window, &done);
		if (!done)
			MPI_Win_wait(window);
		MPI_Group_free(&targets);
		MPI_Group_free(&origins);
		break;
	case LOCK:
		MPI_Win_lock(draw_below(draw, 2) == 0 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED,
			     operation->target, 0, window);
		run_operation(operation, mode);
		if (draw_below(draw, 2) == 0)
			MPI_Win_flush_local(operation->target, window);
		MPI_Win_unlock(operation->target, window);
		break;
	default:
		MPI_Win_lock_all(draw_below(draw, 2) == 0 ? MPI_MODE_NOCHECK : 0, window);
		run_operation(operation, mode);
		if (draw_below(draw, 2) == 0)
			MPI_Win_flush_all(window);
		else
			MPI_Win_flush(operation->target, window);
		MPI_Win_unlock_all(window);
		break;
	}
}

/* --- steps ---------------------------------------------------------------------------------------- */

static void check_bytes(const struct operation *operation, const unsigned char *got,
			const unsigned char *expected, size_t bytes, const char *what)
{
	for (size_t i = 0; i < bytes; i++)
		if (got[i] != expected[i])
			wrong("%s: byte %zu is %02x, not %02x; elements of %zu bytes at %d", what, i, got[i],
			      expected[i], operation->element.size, operation->disp);
}

/* Delicate elements get values first. */
static void prepare_own(const struct operation *operation)
{
	for (int i = 0; i < operation->elements && operation->action != PUT; i++) {
		size_t at = (size_t)((ptrdiff_t)operation->disp * model[me].unit +
				     operation->at_target.offsets[i]);
		element_draw(&operation->element, &(struct draw){at}, own + at);
	}
}

static void skip_padding(const struct operation *operation, unsigned char *bytes, ptrdiff_t first,
			 const struct layout *layout)
{
	for (int i = 0; i < operation->elements; i++)
		memset(bytes + first + layout->offsets[i] + operation->element.used, 0,
		       operation->element.size - operation->element.used);
}

static void run_step(uint64_t seed, uint64_t step, int number, const char *memory)
{
	struct draw draw = draw_from(seed, step, 1000);
	int shift = draw_below(&draw, size);
	enum mode mode = (enum mode)draw_below(&draw, MODES);
	struct operation all[RANKS_MAX];
	int source = (me - shift + size) % size;

	for (int rank = 0; rank < size; rank++)
		all[rank] = draw_operation(rank, shift, seed, step);
	snprintf(description, sizeof(description),
		 "step %llu of window %d (%s, unit %d): %s %s%s of %d %s (%s to %s) from %d by %s, and %s %s "
		 "of "
		 "%d %s (%s) here",
		 (unsigned long long)step, number, memory, model[all[me].target].unit,
		 action_names[all[me].action], all[me].action > GET ? all[me].op_name : "",
		 all[me].request ? " with request" : "", all[me].elements, all[me].element.name,
		 all[me].at_origin.name, all[me].at_target.name, me, mode_names[mode],
		 action_names[all[source].action], all[source].op_name, all[source].elements,
		 all[source].element.name, all[source].at_target.name);
	MPI_Barrier(MPI_COMM_WORLD);
	if (element_is_delicate(&all[source].element)) {
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, me, 0, window);
		prepare_own(&all[source]);
		MPI_Win_unlock(me, window);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	run_in_epoch(&all[me], mode, source, &draw);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int rank = 0; rank < size; rank++)
		apply_to_model(&all[rank]);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, me, 0, window);
	ptrdiff_t first = (ptrdiff_t)all[source].disp * model[me].unit;
	skip_padding(&all[source], own, first, &all[source].at_target);
	for (int rank = 0; rank < size; rank++)
		skip_padding(&all[rank], model[all[rank].target].bytes,
			     (ptrdiff_t)all[rank].disp * model[all[rank].target].unit, &all[rank].at_target);
	check_bytes(&all[source], own, model[me].bytes, (size_t)model[me].length, "the window");
	MPI_Win_unlock(me, window);
	skip_padding(&all[me], all[me].result, (ptrdiff_t)all[me].at_result.before, &all[me].at_result);
	skip_padding(&all[me], all[me].expected, (ptrdiff_t)all[me].at_result.before, &all[me].at_result);
	if (all[me].action != PUT && all[me].action != ACCUMULATE)
		check_bytes(&all[me], all[me].result, all[me].expected, all[me].at_result.bytes,
			    "the result");
	for (int rank = 0; rank < size; rank++)
		free_operation(&all[rank]);
}

static const int units[] = {1, 2, 4, 8, 3, 16};

void steps_run(uint64_t seed, int windows, int count, bool only_sound)
{
	sound = only_sound;
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (int i = 0; i < windows; i++) {
		struct draw draw = draw_from(seed, (uint64_t)i, 2000);
		enum origin_of_memory memory = (enum origin_of_memory)(i % (sound ? FROM_MALLOC : MEMORIES));
		for (int rank = 0; rank < size; rank++) {
			model[rank].length = 8000 + draw_below(&draw, BYTES_MAX - 8000);
			model[rank].unit = units[draw_below(&draw, 6)];
			for (int at = 0; at < model[rank].length; at++)
				model[rank].bytes[at] = (unsigned char)draw_below(&draw, 3);
		}
		snprintf(description, sizeof(description), "making window %d", i);
		if (memory == ALLOCATED)
			MPI_Win_allocate(model[me].length, model[me].unit, MPI_INFO_NULL, MPI_COMM_WORLD,
					 &own, &window);
		else if (memory == FROM_ALLOC_MEM)
			MPI_Alloc_mem(model[me].length, MPI_INFO_NULL, &own);
		else
			own = malloc((size_t)model[me].length);
		if (memory != ALLOCATED)
			MPI_Win_create(own, model[me].length, model[me].unit, MPI_INFO_NULL, MPI_COMM_WORLD,
				       &window);
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, me, 0, window);
		memcpy(own, model[me].bytes, (size_t)model[me].length);
		MPI_Win_unlock(me, window);
		for (int step = 0; step < count; step++)
			run_step(seed, (uint64_t)i * 100000 + (uint64_t)step, i, memory_names[memory]);
		snprintf(description, sizeof(description), "freeing window %d", i);
		MPI_Win_free(&window);
		if (memory == FROM_ALLOC_MEM)
			MPI_Free_mem(own);
		else if (memory == FROM_MALLOC)
			free(own);
	}
}
