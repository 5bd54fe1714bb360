/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * buffers.c - buffers that know what they must hold after the step.
 *
 * Beside the memory that MPI gets there is a copy of what is expected, byte by byte. Guards and gaps within
 * elements are filled with a pattern, and must keep it. `marks` says which bytes begin a value, because two
 * values may be equal while their bytes are not: zeros of both signs, and the padding of long doubles.
 */
#include "steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 96, MARK_FREE = 255 };

uint64_t source_of(uint64_t group, int rank)
{
	return mix(group, (uint64_t)rank);
}

uint64_t source_to(uint64_t group, int rank, int to)
{
	return mix(source_of(group, rank), (uint64_t)to + 1000);
}

void buffer_make(struct buffer *buffer, struct step *step, const char *name, const struct type *type,
		 long elements)
{
	ptrdiff_t low = 0, high = 0;
	ptrdiff_t aside = 16 * draw_below(&step->one, 5);

	if (elements > 0) {
		low = type->low < 0 ? type->low : 0;
		high = (elements - 1) * type->extent + type->high;
	}
	*buffer = (struct buffer){.step = step, .name = name, .type = type};
	buffer->first = GUARD - (low - 15) / 16 * 16 + aside;
	buffer->bytes = (size_t)(buffer->first + high + GUARD);
	buffer->memory = malloc(buffer->bytes);
	buffer->expected = malloc(buffer->bytes);
	buffer->marks = calloc(1, buffer->bytes);
	if (buffer->memory == NULL || buffer->expected == NULL || buffer->marks == NULL)
		step_fail(step, "no memory");
	for (size_t i = 0; i < buffer->bytes; i++)
		buffer->memory[i] = (unsigned char)(0xa5 ^ i * 29);
	memcpy(buffer->expected, buffer->memory, buffer->bytes);
}

void *buffer_address(const struct buffer *buffer)
{
	return buffer->memory + buffer->first;
}

static void put_value(struct buffer *buffer, long element, int unit, const struct value *value, bool is_input)
{
	const struct type *type = buffer->type;
	ptrdiff_t at = buffer->first + element * type->extent + type->at[unit];

	value_store(value, type->kinds[unit], buffer->expected + at);
	if (is_input)
		value_store(value, type->kinds[unit], buffer->memory + at);
	buffer->marks[at] = (unsigned char)(type->kinds[unit] + 1);
}

void buffer_put(struct buffer *buffer, long element, int count, uint64_t source, long from, bool is_input)
{
	const struct type *type = buffer->type;
	enum action action = buffer->step->operation.action;
	struct value value;

	for (int e = 0; e < count; e++)
		for (int u = 0; u < type->units; u++, from++) {
			value_draw(&value, type->kinds[u], action, mix(source, (uint64_t)from));
			put_value(buffer, element + e, u, &value, is_input);
		}
}

void buffer_expect(struct buffer *buffer, long element, int count, const uint64_t *sources, int number,
		   long from)
{
	const struct type *type = buffer->type;
	enum action action = buffer->step->operation.action;
	struct value left[UNITS_MAX], right[UNITS_MAX];

	for (int e = 0; e < count; e++, from += type->units) {
		for (int source = 0; source < number; source++) {
			for (int u = 0; u < type->units; u++) {
				value_draw(&right[u], type->kinds[u], action,
					   mix(sources[source], (uint64_t)(from + u)));
				if (source > 0)
					value_combine(action, type->kinds[u], &left[u], &right[u]);
			}
			if (source > 0 && action == ACTION_MATRIX)
				matrix_combine(type->kinds[0], left, right);
			memcpy(left, right, sizeof left);
		}
		for (int u = 0; u < type->units; u++)
			put_value(buffer, element + e, u, &left[u], false);
	}
}

void buffer_ignore(struct buffer *buffer, long element, int count)
{
	const struct type *type = buffer->type;

	for (int e = 0; e < count; e++)
		for (int u = 0; u < type->units; u++)
			memset(buffer->marks + buffer->first + (element + e) * type->extent + type->at[u],
			       MARK_FREE, kind_size(type->kinds[u]));
}

static void check_value(const struct buffer *buffer, size_t at)
{
	enum action action = buffer->step->operation.action;
	enum kind kind = (enum kind)(buffer->marks[at] - 1);
	bool truth = action == ACTION_LAND || action == ACTION_LOR || action == ACTION_LXOR;
	struct value expected, got;
	char words[2][80];

	value_load(&expected, kind, buffer->expected + at);
	value_load(&got, kind, buffer->memory + at);
	if (value_equal(&expected, &got, kind, truth))
		return;
	value_print(&expected, kind, words[0], sizeof words[0]);
	value_print(&got, kind, words[1], sizeof words[1]);
	step_fail(buffer->step, "%s, byte %td: expected %s, got %s", buffer->name,
		  (ptrdiff_t)at - buffer->first, words[0], words[1]);
}

static void check_bytes(const struct buffer *buffer)
{
	for (size_t i = 0; i < buffer->bytes; i++) {
		if (buffer->marks[i] == MARK_FREE)
			continue;
		if (buffer->marks[i] != 0) {
			check_value(buffer, i);
			i += kind_size((enum kind)(buffer->marks[i] - 1)) - 1;
		} else if (buffer->memory[i] != buffer->expected[i]) {
			step_fail(buffer->step, "%s, byte %td of %zu: a byte that is no data was overwritten",
				  buffer->name, (ptrdiff_t)i - buffer->first, buffer->bytes);
		}
	}
}

void buffer_check(struct buffer *buffer)
{
	if (memcmp(buffer->memory, buffer->expected, buffer->bytes) != 0)
		check_bytes(buffer);
	free(buffer->memory);
	free(buffer->expected);
	free(buffer->marks);
}
