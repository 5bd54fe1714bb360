/* SPDX-License-Identifier: BSD-3-Clause */
/* elements.c - see elements.h */
#include "elements.h"

#include <complex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- numbers -------------------------------------------------------------------------------------- */

static uint64_t mixed(uint64_t word)
{
	word = (word ^ word >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	word = (word ^ word >> 27) * UINT64_C(0x94d049bb133111eb);
	return word ^ word >> 31;
}

struct draw draw_from(uint64_t seed, uint64_t step, uint64_t rank)
{
	return (struct draw){mixed(mixed(mixed(seed + 1) ^ step) ^ (rank + 7))};
}

uint64_t draw_word(struct draw *draw)
{
	draw->state += UINT64_C(0x9e3779b97f4a7c15);
	return mixed(draw->state);
}

int draw_below(struct draw *draw, int bound)
{
	return (int)(draw_word(draw) % (uint64_t)bound);
}

/* --- datatypes ------------------------------------------------------------------------------------ */

const int element_count = 24;

struct element element_at(int index)
{
#define ROW(type, class, size) \
	{ \
		type, #type, class, size, size \
	}
	const struct element all[] = {
		ROW(MPI_INT, INTEGER, sizeof(int)),
		ROW(MPI_DOUBLE, FLOATING, sizeof(double)),
		ROW(MPI_INT8_T, INTEGER, 1),
		ROW(MPI_UINT8_T, INTEGER, 1),
		ROW(MPI_INT16_T, INTEGER, 2),
		ROW(MPI_UINT16_T, INTEGER, 2),
		ROW(MPI_INT32_T, INTEGER, 4),
		ROW(MPI_UINT32_T, INTEGER, 4),
		ROW(MPI_INT64_T, INTEGER, 8),
		ROW(MPI_UINT64_T, INTEGER, 8),
		ROW(MPI_SIGNED_CHAR, INTEGER, 1),
		ROW(MPI_UNSIGNED_SHORT, INTEGER, sizeof(short)),
		ROW(MPI_LONG, INTEGER, sizeof(long)),
		ROW(MPI_UNSIGNED_LONG_LONG, INTEGER, sizeof(long long)),
		ROW(MPI_AINT, INTEGER, sizeof(MPI_Aint)),
		ROW(MPI_FLOAT, FLOATING, sizeof(float)),
		{MPI_LONG_DOUBLE, "MPI_LONG_DOUBLE", FLOATING, sizeof(long double), 10},
		ROW(MPI_C_FLOAT_COMPLEX, COMPLEX, sizeof(float complex)),
		ROW(MPI_C_DOUBLE_COMPLEX, COMPLEX, sizeof(double complex)),
		ROW(MPI_C_BOOL, LOGICAL, sizeof(bool)),
		ROW(MPI_CHAR, CHARACTERS, 1),
		ROW(MPI_WCHAR, CHARACTERS, sizeof(wchar_t)),
		ROW(MPI_BYTE, BYTES, 1),
		ROW(MPI_2INT, PAIR, 2 * sizeof(int)),
	};
	return all[index];
}

void element_draw(const struct element *element, struct draw *draw, unsigned char *at)
{
	int number = draw_below(draw, 7) - 3;
	int second = draw_below(draw, 5);
	int pair[2] = {number, second};
	int64_t integer = number;
	float small = (float)number;
	double wide = number;
	long double long_wide = number;
	float complex small_complex = small + (float)second * I;
	double complex wide_complex = wide + second * I;
	const void *from = &integer; /* little endian */

	memset(at, 0, element->size);
	if (element->class == FLOATING)
		from = element->size == sizeof(float)    ? (const void *)&small
		       : element->size == sizeof(double) ? (const void *)&wide
							 : (const void *)&long_wide;
	else if (element->class == COMPLEX)
		from = element->size == sizeof(float complex) ? (const void *)&small_complex
							      : (const void *)&wide_complex;
	else if (element->class == LOGICAL)
		integer = number > 0;
	else if (element->class == PAIR)
		from = pair;
	memcpy(at, from, element->used);
}

static MPI_Op one_of(const MPI_Op *ops, const char *const *names, int count, struct draw *draw,
		     const char **name)
{
	int i = draw_below(draw, count);

	*name = names[i];
	return ops[i];
}

MPI_Op element_op(const struct element *element, struct draw *draw, const char **name)
{
	const MPI_Op integers[] = {MPI_SUM, MPI_PROD, MPI_MIN,  MPI_MAX, MPI_BAND,
				   MPI_BOR, MPI_BXOR, MPI_LAND, MPI_LOR, MPI_LXOR};
	static const char *const integer_names[] = {"sum", "prod", "min",  "max", "band",
						    "bor", "bxor", "land", "lor", "lxor"};
	const MPI_Op pairs[] = {MPI_MINLOC, MPI_MAXLOC};
	static const char *const pair_names[] = {"minloc", "maxloc"};
	const MPI_Op moves[] = {MPI_REPLACE, MPI_NO_OP};
	static const char *const move_names[] = {"replace", "no_op"};

	if (element->class == CHARACTERS || draw_below(draw, 4) == 0)
		return one_of(moves, move_names, 2, draw, name);
	switch (element->class) {
	case INTEGER:
		return one_of(integers, integer_names, 10, draw, name);
	case FLOATING:
		return one_of(integers, integer_names, 4, draw, name);
	case COMPLEX:
		return one_of(integers, integer_names, 2, draw, name);
	case LOGICAL:
		return one_of(integers + 7, integer_names + 7, 3, draw, name);
	case BYTES:
		return one_of(integers + 4, integer_names + 4, 3, draw, name);
	default:
		return one_of(pairs, pair_names, 2, draw, name);
	}
}

/* --- layouts -------------------------------------------------------------------------------------- */

enum { ROW_LAYOUT, VECTOR, REVERSED, SPARSE, HALVES, NESTED, DOWNWARDS, LAYOUTS };
static const char *const layout_names[] = {"row",    "vector", "reversed", "sparse",
					   "halves", "nested", "downwards"};

static void make_halves(struct layout *layout, const struct element *element, int first, ptrdiff_t gap)
{
	int lengths[2] = {first, layout->elements - first};
	MPI_Aint places[2] = {0, first * (MPI_Aint)element->size + gap};
	MPI_Datatype types[2] = {element->type, element->type};

	MPI_Type_create_struct(2, lengths, places, types, &layout->type);
	for (int i = first; i < layout->elements; i++)
		layout->offsets[i] += gap;
}

static void make_reversed(struct layout *layout, const struct element *element)
{
	MPI_Aint *places = malloc((size_t)layout->elements * sizeof(*places));

	for (int i = 0; i < layout->elements; i++) {
		places[i] = (layout->elements - 1 - i) * (MPI_Aint)element->size;
		layout->offsets[i] = places[i];
	}
	MPI_Type_create_hindexed_block(layout->elements, 1, places, element->type, &layout->type);
	free(places);
}

/* A vector of pairs of elements, in which the second one lies first. */
static void make_nested(struct layout *layout, const struct element *element)
{
	int places[2] = {1, 0};
	MPI_Datatype pair;

	MPI_Type_create_indexed_block(2, 1, places, element->type, &pair);
	MPI_Type_create_hvector(layout->elements / 2, 1, 3 * (MPI_Aint)element->size, pair, &layout->type);
	MPI_Type_free(&pair);
	for (int i = 0; i < layout->elements; i++)
		layout->offsets[i] = (i / 2 * 3 + (i % 2 == 0 ? 1 : 0)) * (ptrdiff_t)element->size;
}

static void make_strided(struct layout *layout, const struct element *element, ptrdiff_t stride)
{
	MPI_Type_create_hvector(layout->elements, 1, stride * (MPI_Aint)element->size, element->type,
				&layout->type);
	for (int i = 0; i < layout->elements; i++)
		layout->offsets[i] = i * stride * (ptrdiff_t)element->size;
}

struct layout layout_draw(const struct element *element, int elements, bool plain, struct draw *draw)
{
	int kind = plain ? ROW_LAYOUT : draw_below(draw, LAYOUTS);
	ptrdiff_t low = 0;
	ptrdiff_t high = 0;

	if (kind == NESTED && elements % 2 != 0)
		kind = SPARSE;
	struct layout layout = {
		.name = layout_names[kind],
		.elements = elements,
		.count = 1,
		.made = kind != ROW_LAYOUT,
		.type = element->type,
		.offsets = malloc(((size_t)elements + 1) * sizeof(*layout.offsets)),
	};
	for (int i = 0; i < elements; i++)
		layout.offsets[i] = i * (ptrdiff_t)element->size;
	switch (kind) {
	case VECTOR:
		make_strided(&layout, element, 2);
		break;
	case DOWNWARDS:
		make_strided(&layout, element, -2);
		break;
	case REVERSED:
		make_reversed(&layout, element);
		break;
	case HALVES:
		make_halves(&layout, element, elements / 2, 3 * (ptrdiff_t)element->size);
		break;
	case NESTED:
		make_nested(&layout, element);
		break;
	case SPARSE:
		layout.count = elements;
		MPI_Type_create_resized(element->type, 0, 3 * (MPI_Aint)element->size, &layout.type);
		for (int i = 0; i < elements; i++)
			layout.offsets[i] *= 3;
		break;
	default:
		layout.count = elements;
		break;
	}
	if (layout.made)
		MPI_Type_commit(&layout.type);
	for (int i = 0; i < elements; i++) {
		low = layout.offsets[i] < low ? layout.offsets[i] : low;
		high = layout.offsets[i] > high ? layout.offsets[i] : high;
	}
	layout.before = (size_t)-low;
	layout.bytes = (size_t)(high - low) + element->size;
	return layout;
}

void layout_free(struct layout *layout)
{
	if (layout->made)
		MPI_Type_free(&layout->type);
	free(layout->offsets);
}
