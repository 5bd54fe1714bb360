/* SPDX-License-Identifier: BSD-3-Clause */
/* values.c - see values.h */
#include "values.h"

#include <complex.h>
#include <stdio.h>
#include <string.h>

uint64_t mix(uint64_t a, uint64_t b)
{
	uint64_t word = a * 0x9e3779b97f4a7c15u ^ (b + 0xd1b54a32d192ed03u);

	word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
	word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
	return word ^ (word >> 31);
}

uint64_t draw_word(struct draw *draw)
{
	draw->state = mix(draw->state, 1);
	return draw->state;
}

int draw_below(struct draw *draw, int bound)
{
	return (int)((draw_word(draw) >> 16) % (uint64_t)bound);
}

struct pair_16 {
	short value;
	int index;
};
struct pair_32 {
	int value;
	int index;
};
struct pair_64 {
	long value;
	int index;
};
struct pair_f32 {
	float value;
	int index;
};
struct pair_f64 {
	double value;
	int index;
};
struct pair_fld {
	long double value;
	int index;
};
struct two_f32 {
	float value;
	float index;
};
struct two_f64 {
	double value;
	double index;
};

size_t kind_size(enum kind kind)
{
	static const size_t sizes[KIND_COUNT] = {
		[KIND_I8] = 1,
		[KIND_I16] = 2,
		[KIND_I32] = 4,
		[KIND_I64] = 8,
		[KIND_U8] = 1,
		[KIND_U16] = 2,
		[KIND_U32] = 4,
		[KIND_U64] = 8,
		[KIND_BOOL] = 1,
		[KIND_F32] = sizeof(float),
		[KIND_F64] = sizeof(double),
		[KIND_FLD] = sizeof(long double),
		[KIND_C32] = sizeof(float complex),
		[KIND_C64] = sizeof(double complex),
		[KIND_CLD] = sizeof(long double complex),
		[KIND_P16] = sizeof(struct pair_16),
		[KIND_P32] = sizeof(struct pair_32),
		[KIND_P64] = sizeof(struct pair_64),
		[KIND_PF32] = sizeof(struct pair_f32),
		[KIND_PF64] = sizeof(struct pair_f64),
		[KIND_PFLD] = sizeof(struct pair_fld),
		[KIND_2F32] = sizeof(struct two_f32),
		[KIND_2F64] = sizeof(struct two_f64),
	};

	return sizes[kind];
}

bool kind_is_integer(enum kind kind)
{
	return kind <= KIND_U64;
}

static bool is_signed(enum kind kind)
{
	return kind <= KIND_I64;
}

/* The lowest bits that the kind has room for, sign-extended. */
static uint64_t fit(enum kind kind, uint64_t bits)
{
	unsigned unused = 64 - 8 * (unsigned)kind_size(kind);

	if (is_signed(kind))
		return (uint64_t)((int64_t)(bits << unused) >> unused);
	return bits << unused >> unused;
}

static uint64_t draw_integer(enum kind kind, enum action action, uint64_t hash)
{
	switch (action) {
	case ACTION_SUM: /* no overflow: Open MPI 5.0.11 saturates sums of 8 and 16 bits */
		return is_signed(kind) ? hash % 31 - 15 : hash % 31;
	case ACTION_PROD: /* not zero, which would hide what it is multiplied with */
		return is_signed(kind) ? (uint64_t[]){1, 2, (uint64_t)-1}[hash % 3] : hash | 1;
	case ACTION_LAND:
	case ACTION_LOR:
	case ACTION_LXOR: /* different bits, so that a bitwise operation gives something else */
		return hash % 3 == 0 ? 0 : (uint64_t)1 << hash % 7;
	default:
		return hash;
	}
}

void value_draw(struct value *value, enum kind kind, enum action action, uint64_t hash)
{
	static const signed char units[6][2] = {{1, 0}, {0, 1}, {-1, 0}, {1, 1}, {0, -1}, {1, -1}};
	static const double factors[4] = {1, -1, 2, 0.5};
	int64_t number = (int64_t)(hash >> 12) % 100003 - 50000;

	*value = (struct value){0};
	if (kind_is_integer(kind)) {
		value->bits = fit(kind, draw_integer(kind, action, hash));
	} else if (kind == KIND_BOOL) {
		value->bits = hash >> 20 & 1;
	} else if (kind <= KIND_FLD) {
		value->re = action == ACTION_PROD ? factors[hash >> 8 & 3] : number;
	} else if (kind <= KIND_CLD) {
		const signed char *unit = units[(hash >> 8) % 6];

		value->re = action == ACTION_PROD ? unit[0] : number;
		value->im = action == ACTION_PROD ? unit[1] : (int64_t)(hash >> 40) % 1001 - 500;
	} else {
		value->re = (int64_t)(hash >> 8) % 5 - 2;
		value->im = (int64_t)(hash >> 20) % 1000;
	}
}

/* Calls CASE(kind, C type) for all kinds of one part. */
#define INTEGER_KINDS(CASE) \
	CASE(KIND_I8, int8_t) \
	CASE(KIND_I16, int16_t) \
	CASE(KIND_I32, int32_t) \
	CASE(KIND_I64, int64_t) \
	CASE(KIND_U8, uint8_t) \
	CASE(KIND_U16, uint16_t) \
	CASE(KIND_U32, uint32_t) \
	CASE(KIND_U64, uint64_t) \
	CASE(KIND_BOOL, bool)
#define FLOATING_KINDS(CASE) \
	CASE(KIND_F32, float) \
	CASE(KIND_F64, double) \
	CASE(KIND_FLD, long double)
#define COMPLEX_KINDS(CASE) \
	CASE(KIND_C32, float) \
	CASE(KIND_C64, double) \
	CASE(KIND_CLD, long double)
#define PAIR_KINDS(CASE) \
	CASE(KIND_P16, struct pair_16, short, int) \
	CASE(KIND_P32, struct pair_32, int, int) \
	CASE(KIND_P64, struct pair_64, long, int) \
	CASE(KIND_PF32, struct pair_f32, float, int) \
	CASE(KIND_PF64, struct pair_f64, double, int) \
	CASE(KIND_PFLD, struct pair_fld, long double, int) \
	CASE(KIND_2F32, struct two_f32, float, float) \
	CASE(KIND_2F64, struct two_f64, double, double)

void value_store(const struct value *value, enum kind kind, void *at)
{
	switch (kind) {
#define STORE(name, type) \
	case name: { \
		type stored = (type)value->bits; \
		memcpy(at, &stored, sizeof stored); \
		return; \
	}
		INTEGER_KINDS(STORE)
#undef STORE
#define STORE(name, type) \
	case name: { \
		type stored = (type)value->re; \
		memcpy(at, &stored, sizeof stored); \
		return; \
	}
		FLOATING_KINDS(STORE)
#undef STORE
#define STORE(name, type) \
	case name: { \
		type stored[2] = {(type)value->re, (type)value->im}; \
		memcpy(at, stored, sizeof stored); \
		return; \
	}
		COMPLEX_KINDS(STORE)
#undef STORE
/* Not the padding, for which an MPI's own buffers may have no room. */
#define STORE(name, type, first, second) \
	case name: { \
		first stored = (first)value->re; \
		second index = (second)value->im; \
		memcpy(at, &stored, sizeof stored); \
		memcpy((char *)at + offsetof(type, index), &index, sizeof index); \
		return; \
	}
		PAIR_KINDS(STORE)
#undef STORE
	case KIND_COUNT:
		return;
	}
}

void value_load(struct value *value, enum kind kind, const void *at)
{
	*value = (struct value){0};
	switch (kind) {
#define LOAD(name, type) \
	case name: { \
		type stored; \
		memcpy(&stored, at, sizeof stored); \
		value->bits = (uint64_t)stored; \
		return; \
	}
		INTEGER_KINDS(LOAD)
#undef LOAD
#define LOAD(name, type) \
	case name: { \
		type stored; \
		memcpy(&stored, at, sizeof stored); \
		value->re = stored; \
		return; \
	}
		FLOATING_KINDS(LOAD)
#undef LOAD
#define LOAD(name, type) \
	case name: { \
		type stored[2]; \
		memcpy(stored, at, sizeof stored); \
		value->re = stored[0]; \
		value->im = stored[1]; \
		return; \
	}
		COMPLEX_KINDS(LOAD)
#undef LOAD
#define LOAD(name, type, first, second) \
	case name: { \
		first stored; \
		second index; \
		memcpy(&stored, at, sizeof stored); \
		memcpy(&index, (const char *)at + offsetof(type, index), sizeof index); \
		value->re = (long double)stored; \
		value->im = (long double)index; \
		return; \
	}
		PAIR_KINDS(LOAD)
#undef LOAD
	case KIND_COUNT:
		return;
	}
}

bool value_equal(const struct value *a, const struct value *b, enum kind kind, bool truth)
{
	if (kind > KIND_BOOL)
		return a->re == b->re && a->im == b->im;
	return truth ? !a->bits == !b->bits : a->bits == b->bits;
}

void value_print(const struct value *value, enum kind kind, char *text, size_t bytes)
{
	if (kind <= KIND_BOOL)
		snprintf(text, bytes, "0x%llx", (unsigned long long)value->bits);
	else if (kind <= KIND_FLD)
		snprintf(text, bytes, "%Lg", value->re);
	else
		snprintf(text, bytes, "(%Lg, %Lg)", value->re, value->im);
}

static bool is_less(enum kind kind, const struct value *a, const struct value *b)
{
	if (kind > KIND_BOOL)
		return a->re < b->re;
	return is_signed(kind) ? (int64_t)a->bits < (int64_t)b->bits : a->bits < b->bits;
}

static void locate(bool left_wins, const struct value *left, struct value *right)
{
	if (left->re == right->re)
		right->im = left->im < right->im ? left->im : right->im;
	else if (left_wins)
		*right = *left;
}

/* Affine functions, with the factor in the upper half of the bits and the addend in the lower half: the
 * composition of two depends on their order, and on each bit of both. */
static uint64_t compose(enum kind kind, uint64_t left, uint64_t right)
{
	unsigned half = 4 * (unsigned)kind_size(kind);
	uint64_t mask = ((uint64_t)1 << half) - 1;
	uint64_t factor = (left >> half & mask) * (right >> half & mask) & mask;
	uint64_t addend = ((left & mask) * (right >> half & mask) + (right & mask)) & mask;

	return factor << half | addend;
}

void value_combine(enum action action, enum kind kind, const struct value *left, struct value *right)
{
	uint64_t a = left->bits, b = right->bits;
	long double re = right->re, im = right->im;

	switch (action) {
	case ACTION_MAX:
		if (is_less(kind, right, left))
			*right = *left;
		return;
	case ACTION_MIN:
		if (is_less(kind, left, right))
			*right = *left;
		return;
	case ACTION_SUM:
		right->re += left->re;
		right->im += left->im;
		b += a;
		break;
	case ACTION_PROD:
		right->re = left->re * re - left->im * im;
		right->im = left->re * im + left->im * re;
		b *= a;
		break;
	case ACTION_LAND:
		b = a && b;
		break;
	case ACTION_LOR:
		b = a || b;
		break;
	case ACTION_LXOR:
		b = !a != !b;
		break;
	case ACTION_BAND:
		b &= a;
		break;
	case ACTION_BOR:
		b |= a;
		break;
	case ACTION_BXOR:
		b ^= a;
		break;
	case ACTION_MAXLOC:
		locate(left->re > re, left, right);
		return;
	case ACTION_MINLOC:
		locate(left->re < re, left, right);
		return;
	case ACTION_MEET:
		if (kind >= KIND_P16)
			locate(left->re > re, left, right);
		else if (kind == KIND_BOOL)
			right->bits = a ^ b;
		else
			value_combine(ACTION_SUM, kind, left, right);
		return;
	case ACTION_COMPOSE: /* of what is no integer, the left value */
		if (!kind_is_integer(kind)) {
			*right = *left;
			return;
		}
		b = compose(kind, a, b);
		break;
	case ACTION_MOVE:
	case ACTION_MATRIX:
		return;
	}
	right->bits = kind_is_integer(kind) ? fit(kind, b) : b;
}

void matrix_combine(enum kind kind, const struct value *left, struct value *right)
{
	uint64_t a[4], b[4];

	for (int i = 0; i < 4; i++) {
		a[i] = left[i].bits;
		b[i] = right[i].bits;
	}
	for (int i = 0; i < 4; i++) {
		int row = i / 2 * 2, column = i % 2;

		right[i].bits = fit(kind, a[row] * b[column] + a[row + 1] * b[column + 2]);
	}
}
