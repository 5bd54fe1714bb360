/* SPDX-License-Identifier: BSD-3-Clause */
/* types.c - see types.h */
#include "types.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the standard allows of its operations, by class of datatypes. */
#define BIT(action) (1u << ACTION_##action)
#define ORDER (BIT(MAX) | BIT(MIN))
#define ARITHMETIC (BIT(SUM) | BIT(PROD))
#define LOGIC (BIT(LAND) | BIT(LOR) | BIT(LXOR))
#define BITWISE (BIT(BAND) | BIT(BOR) | BIT(BXOR))
#define LOCATION (BIT(MAXLOC) | BIT(MINLOC))
#define C_INTEGER (ORDER | ARITHMETIC | LOGIC | BITWISE)
#define FORTRAN_INTEGER (ORDER | ARITHMETIC | BITWISE)
#define FLOATING (ORDER | ARITHMETIC)
#define NONE 0u
struct basic {
	MPI_Datatype handle;
	const char *name;
	enum kind kind;
	unsigned actions;
};

#define BASIC(name, kind, actions) \
	{ \
		name, #name, kind, actions \
	}
#define INTEGER_KIND(type) \
	((type)-1 < (type)1 ? (sizeof(type) == 8 ? KIND_I64 : KIND_I32) \
			    : (sizeof(type) == 8 ? KIND_U64 : KIND_U32))

static struct basic basics[80];
static int basic_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct type *derived;

/* An MPI without Fortran has no datatypes for Fortran, or datatypes without a size. */
static void add_known(const struct basic *basic)
{
	int bytes = 0;

	if (basic->handle == MPI_DATATYPE_NULL)
		return;
	MPI_Type_size(basic->handle, &bytes);
	/* The size of a pair is without padding. */
	if (bytes != (int)kind_size(basic->kind) && !(basic->kind >= KIND_P16 && bytes > 0))
		return;
	basics[basic_count++] = *basic;
}

void types_begin(void)
{
	const struct basic all[] = {
		BASIC(MPI_SIGNED_CHAR, KIND_I8, C_INTEGER),
		BASIC(MPI_SHORT, KIND_I16, C_INTEGER),
		BASIC(MPI_INT, KIND_I32, C_INTEGER),
		BASIC(MPI_LONG, INTEGER_KIND(long), C_INTEGER),
		BASIC(MPI_LONG_LONG, KIND_I64, C_INTEGER),
		BASIC(MPI_UNSIGNED_CHAR, KIND_U8, C_INTEGER),
		BASIC(MPI_UNSIGNED_SHORT, KIND_U16, C_INTEGER),
		BASIC(MPI_UNSIGNED, KIND_U32, C_INTEGER),
		BASIC(MPI_UNSIGNED_LONG, INTEGER_KIND(unsigned long), C_INTEGER),
		BASIC(MPI_UNSIGNED_LONG_LONG, KIND_U64, C_INTEGER),
		BASIC(MPI_INT8_T, KIND_I8, C_INTEGER),
		BASIC(MPI_INT16_T, KIND_I16, C_INTEGER),
		BASIC(MPI_INT32_T, KIND_I32, C_INTEGER),
		BASIC(MPI_INT64_T, KIND_I64, C_INTEGER),
		BASIC(MPI_UINT8_T, KIND_U8, C_INTEGER),
		BASIC(MPI_UINT16_T, KIND_U16, C_INTEGER),
		BASIC(MPI_UINT32_T, KIND_U32, C_INTEGER),
		BASIC(MPI_UINT64_T, KIND_U64, C_INTEGER),
		BASIC(MPI_CHAR, KIND_I8, NONE),
		BASIC(MPI_WCHAR, INTEGER_KIND(wchar_t), NONE),
		BASIC(MPI_PACKED, KIND_U8, NONE),
		BASIC(MPI_BYTE, KIND_U8, BITWISE),
		BASIC(MPI_AINT, KIND_I64, FORTRAN_INTEGER),
		BASIC(MPI_OFFSET, KIND_I64, FORTRAN_INTEGER),
		BASIC(MPI_COUNT, KIND_I64, FORTRAN_INTEGER),
		BASIC(MPI_C_BOOL, KIND_BOOL, LOGIC),
		BASIC(MPI_FLOAT, KIND_F32, FLOATING),
		BASIC(MPI_DOUBLE, KIND_F64, FLOATING),
		BASIC(MPI_LONG_DOUBLE, KIND_FLD, FLOATING),
		BASIC(MPI_C_FLOAT_COMPLEX, KIND_C32, ARITHMETIC),
		BASIC(MPI_C_DOUBLE_COMPLEX, KIND_C64, ARITHMETIC),
		BASIC(MPI_C_LONG_DOUBLE_COMPLEX, KIND_CLD, ARITHMETIC),
		BASIC(MPI_SHORT_INT, KIND_P16, LOCATION),
		BASIC(MPI_2INT, KIND_P32, LOCATION),
		BASIC(MPI_LONG_INT, KIND_P64, LOCATION),
		BASIC(MPI_FLOAT_INT, KIND_PF32, LOCATION),
		BASIC(MPI_DOUBLE_INT, KIND_PF64, LOCATION),
		BASIC(MPI_LONG_DOUBLE_INT, KIND_PFLD, LOCATION),
		/* C++'s, which C programs may use too */
		BASIC(MPI_CXX_BOOL, KIND_BOOL, LOGIC),
		BASIC(MPI_CXX_FLOAT_COMPLEX, KIND_C32, ARITHMETIC),
		BASIC(MPI_CXX_DOUBLE_COMPLEX, KIND_C64, ARITHMETIC),
		BASIC(MPI_CXX_LONG_DOUBLE_COMPLEX, KIND_CLD, ARITHMETIC),
		/* Fortran's */
		BASIC(MPI_INTEGER, KIND_I32, FORTRAN_INTEGER),
		BASIC(MPI_INTEGER1, KIND_I8, FORTRAN_INTEGER),
		BASIC(MPI_INTEGER2, KIND_I16, FORTRAN_INTEGER),
		BASIC(MPI_INTEGER4, KIND_I32, FORTRAN_INTEGER),
		BASIC(MPI_INTEGER8, KIND_I64, FORTRAN_INTEGER),
		BASIC(MPI_REAL, KIND_F32, FLOATING),
		BASIC(MPI_REAL4, KIND_F32, FLOATING),
		BASIC(MPI_REAL8, KIND_F64, FLOATING),
		BASIC(MPI_DOUBLE_PRECISION, KIND_F64, FLOATING),
		BASIC(MPI_COMPLEX, KIND_C32, ARITHMETIC),
		BASIC(MPI_COMPLEX8, KIND_C32, ARITHMETIC),
		BASIC(MPI_COMPLEX16, KIND_C64, ARITHMETIC),
		BASIC(MPI_DOUBLE_COMPLEX, KIND_C64, ARITHMETIC),
		BASIC(MPI_CHARACTER, KIND_U8, NONE),
		BASIC(MPI_LOGICAL, KIND_U32, NONE), /* which words are true, only Fortran knows */
		BASIC(MPI_2INTEGER, KIND_P32, LOCATION),
		BASIC(MPI_2REAL, KIND_2F32, LOCATION),
		BASIC(MPI_2DOUBLE_PRECISION, KIND_2F64, LOCATION),
	};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		add_known(&all[i]);
}

/* A list of values at their bytes, before MPI has a datatype for it. */
static void put_unit(struct type *type, enum kind kind, ptrdiff_t at)
{
	type->at[type->units] = at;
	type->kinds[type->units++] = kind;
}

static void type_of_basic(struct type *type, const struct basic *basic)
{
	*type = (struct type){.handle = basic->handle, .basic = basic->handle, .actions = basic->actions};
	snprintf(type->name, sizeof type->name, "%s", basic->name);
	put_unit(type, basic->kind, 0);
	type->extent = type->high = (MPI_Aint)kind_size(basic->kind);
}

static void resize(struct type *type, MPI_Aint low, MPI_Aint extent)
{
	MPI_Datatype old = type->handle;

	MPI_Type_create_resized(old, low, extent, &type->handle);
	MPI_Type_free(&old);
}

static void make_contiguous(struct type *type, enum kind kind, struct draw *draw)
{
	int count = 1 + draw_below(draw, 4);

	MPI_Type_contiguous(count, type->basic, &type->handle);
	for (int i = 0; i < count; i++)
		put_unit(type, kind, i * (ptrdiff_t)kind_size(kind));
}

static void make_vector(struct type *type, enum kind kind, struct draw *draw)
{
	int blocks = 2 + draw_below(draw, 2), length = 1 + draw_below(draw, 3);
	int stride = length + 1 + draw_below(draw, 3);

	MPI_Type_vector(blocks, length, stride, type->basic, &type->handle);
	for (int i = 0; i < blocks * length; i++)
		put_unit(type, kind, (i / length * stride + i % length) * (ptrdiff_t)kind_size(kind));
	if (draw_below(draw, 2) == 0) /* a gap between elements too */
		resize(type, 0, (blocks * stride + 1) * (MPI_Aint)kind_size(kind));
}

/* Bytes before the address of an element, and elements that lie apart. */
static void make_resized(struct type *type, enum kind kind, struct draw *draw)
{
	int before = 1 + draw_below(draw, 3), count = 1 + draw_below(draw, 4);
	int lengths[1] = {count};
	MPI_Aint size = (MPI_Aint)kind_size(kind), at[1] = {-before * size};

	MPI_Type_create_hindexed(1, lengths, at, type->basic, &type->handle);
	for (int i = 0; i < count; i++)
		put_unit(type, kind, (i - before) * size);
	resize(type, -(before + 1) * size, (count + 2) * size);
}

/* The values are not in the order of their addresses. */
static void make_backward(struct type *type, enum kind kind, struct draw *draw)
{
	enum { COUNT = 4 };
	int lengths[COUNT], stride = 1 + draw_below(draw, 2);
	MPI_Aint size = (MPI_Aint)kind_size(kind), at[COUNT];

	for (int i = 0; i < COUNT; i++) {
		lengths[i] = 1;
		at[i] = (COUNT - 1 - i) * stride * size;
		put_unit(type, kind, at[i]);
	}
	MPI_Type_create_hindexed(COUNT, lengths, at, type->basic, &type->handle);
}

static void make_struct(struct type *type, const struct basic *basic, struct draw *draw)
{
	MPI_Datatype parts[3] = {MPI_INT, basic->handle, MPI_DOUBLE};
	enum kind kinds[3] = {KIND_I32, basic->kind, KIND_F64};
	int lengths[3] = {1 + draw_below(draw, 2), 1 + draw_below(draw, 3), 1};
	MPI_Aint at[3], from = 0;

	for (int i = 0; i < 3; i++) {
		at[i] = from;
		for (int j = 0; j < lengths[i]; j++)
			put_unit(type, kinds[i], from + j * (ptrdiff_t)kind_size(kinds[i]));
		from += lengths[i] * (MPI_Aint)kind_size(kinds[i]);
		from = (from + 15) / 16 * 16 + 16 * draw_below(draw, 2);
	}
	MPI_Type_create_struct(3, lengths, at, parts, &type->handle);
	resize(type, 0, from);
	type->basic = MPI_DATATYPE_NULL;
}

static void make_derived(struct type *type, const struct basic *basic, struct draw *draw)
{
	static const char *const names[] = {"contiguous", "vector",    "resized",
					    "backward",   "structure", "copy"};
	int choice = draw_below(draw, 6);
	MPI_Aint low;

	*type = (struct type){.basic = basic->handle, .is_derived = true};
	snprintf(type->name, sizeof type->name, "%s of %s", names[choice], basic->name);
	switch (choice) {
	case 0:
		make_contiguous(type, basic->kind, draw);
		break;
	case 1:
		make_vector(type, basic->kind, draw);
		break;
	case 2:
		make_resized(type, basic->kind, draw);
		break;
	case 3:
		make_backward(type, basic->kind, draw);
		break;
	case 4:
		make_struct(type, basic, draw);
		break;
	default:
		MPI_Type_dup(basic->handle, &type->handle);
		put_unit(type, basic->kind, 0);
	}
	MPI_Type_commit(&type->handle);
	MPI_Type_get_extent(type->handle, &low, &type->extent);
	for (int i = 0; i < type->units; i++) {
		MPI_Aint end = type->at[i] + (MPI_Aint)kind_size(type->kinds[i]);

		type->low = type->at[i] < type->low ? type->at[i] : type->low;
		type->high = end > type->high ? end : type->high;
	}
	pthread_mutex_lock(&lock);
	type->next = derived;
	derived = type;
	pthread_mutex_unlock(&lock);
}

void type_make(struct type *type, struct draw *draw)
{
	const struct basic *basic = &basics[draw_below(draw, basic_count)];

	if (draw_below(draw, 5) < 2)
		make_derived(type, basic, draw);
	else
		type_of_basic(type, basic);
}

void type_plain(struct type *type)
{
	type_of_basic(type, &(struct basic)BASIC(MPI_LONG, INTEGER_KIND(long), C_INTEGER));
}

void type_free(struct type *type)
{
	if (!type->is_derived)
		return;
	pthread_mutex_lock(&lock);
	struct type **link = &derived;
	while (*link != type)
		link = &(*link)->next;
	*link = type->next;
	pthread_mutex_unlock(&lock);
	MPI_Type_free(&type->handle);
}

static bool find_type(MPI_Datatype handle, struct type *found)
{
	for (int i = 0; i < basic_count; i++)
		if (basics[i].handle == handle) {
			type_of_basic(found, &basics[i]);
			return true;
		}
	pthread_mutex_lock(&lock);
	const struct type *each = derived;
	while (each != NULL && each->handle != handle)
		each = each->next;
	if (each != NULL)
		*found = *each;
	pthread_mutex_unlock(&lock);
	return each != NULL;
}

void type_flat(const struct type *type, struct type *flat)
{
	find_type(type->basic, flat);
}

/* --- operations of users -------------------------------------------------------------------------- */

static void apply(enum action action, const char *in, char *inout, int count, MPI_Datatype handle)
{
	struct value left[UNITS_MAX], right[UNITS_MAX];
	struct type type;

	if (!find_type(handle, &type)) {
		fprintf(stderr, "wrong: an operation was called with a datatype that no caller passed\n");
		abort();
	}
	for (int e = 0; e < count; e++) {
		for (int u = 0; u < type.units; u++) {
			ptrdiff_t at = e * type.extent + type.at[u];

			value_load(&left[u], type.kinds[u], in + at);
			value_load(&right[u], type.kinds[u], inout + at);
			value_combine(action, type.kinds[u], &left[u], &right[u]);
		}
		if (action == ACTION_MATRIX)
			matrix_combine(type.kinds[0], left, right);
		for (int u = 0; u < type.units; u++)
			value_store(&right[u], type.kinds[u], inout + e * type.extent + type.at[u]);
	}
}

/* NOLINTBEGIN(readability-non-const-parameter): MPI_User_function */
static void meet(void *in, void *inout, int *count, MPI_Datatype *type)
{
	apply(ACTION_MEET, in, inout, *count, *type);
}

static void compose(void *in, void *inout, int *count, MPI_Datatype *type)
{
	apply(ACTION_COMPOSE, in, inout, *count, *type);
}

static void multiply(void *in, void *inout, int *count, MPI_Datatype *type)
{
	apply(ACTION_MATRIX, in, inout, *count, *type);
}
/* NOLINTEND(readability-non-const-parameter) */

static bool is_matrix(const struct type *type)
{
	return type->units == 4 && type->basic != MPI_DATATYPE_NULL && kind_is_integer(type->kinds[0]);
}

static void make_own(struct operation *operation, const struct type *type, struct draw *draw)
{
	int choice = draw_below(draw, 3);

	operation->is_own = true;
	if (choice == 0) {
		operation->name = "commutative";
		operation->action = ACTION_MEET;
		MPI_Op_create(meet, 1, &operation->handle);
	} else if (is_matrix(type)) {
		operation->name = "matrices";
		operation->action = ACTION_MATRIX;
		MPI_Op_create(multiply, 0, &operation->handle);
	} else {
		operation->name = "composition";
		operation->action = ACTION_COMPOSE;
		MPI_Op_create(compose, 0, &operation->handle);
	}
}

void operation_make(struct operation *operation, const struct type *type, struct draw *draw)
{
	const struct operation all[] = {
		{MPI_MAX, "MPI_MAX", ACTION_MAX, false},
		{MPI_MIN, "MPI_MIN", ACTION_MIN, false},
		{MPI_SUM, "MPI_SUM", ACTION_SUM, false},
		{MPI_PROD, "MPI_PROD", ACTION_PROD, false},
		{MPI_LAND, "MPI_LAND", ACTION_LAND, false},
		{MPI_LOR, "MPI_LOR", ACTION_LOR, false},
		{MPI_LXOR, "MPI_LXOR", ACTION_LXOR, false},
		{MPI_BAND, "MPI_BAND", ACTION_BAND, false},
		{MPI_BOR, "MPI_BOR", ACTION_BOR, false},
		{MPI_BXOR, "MPI_BXOR", ACTION_BXOR, false},
		{MPI_MAXLOC, "MPI_MAXLOC", ACTION_MAXLOC, false},
		{MPI_MINLOC, "MPI_MINLOC", ACTION_MINLOC, false},
	};
	enum { COUNT = sizeof all / sizeof *all };

	if (type->actions == NONE || draw_below(draw, 3) == 0) {
		make_own(operation, type, draw);
		return;
	}
	for (int i = draw_below(draw, COUNT);; i = (i + 1) % COUNT)
		if (type->actions >> all[i].action & 1) {
			*operation = all[i];
			return;
		}
}

void operation_free(struct operation *operation)
{
	if (operation->is_own)
		MPI_Op_free(&operation->handle);
}
