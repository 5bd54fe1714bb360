/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * values.h - drawn numbers, and the values of MPI's basic types: how each is drawn, stored, compared
 * and combined by the operations.
 */
#ifndef COLLECTIVES_VALUES_H
#define COLLECTIVES_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A stream of numbers that depends on its seed only. */
struct draw {
	uint64_t state;
};

uint64_t mix(uint64_t a, uint64_t b);
uint64_t draw_word(struct draw *draw);
int draw_below(struct draw *draw, int bound);

enum kind {
	KIND_I8,
	KIND_I16,
	KIND_I32,
	KIND_I64,
	KIND_U8,
	KIND_U16,
	KIND_U32,
	KIND_U64,
	KIND_BOOL,
	KIND_F32,
	KIND_F64,
	KIND_FLD, /* long double */
	KIND_C32,
	KIND_C64,
	KIND_CLD,
	KIND_P16, /* pairs of a value and an int: short, int, long, float, double, long double */
	KIND_P32,
	KIND_P64,
	KIND_PF32,
	KIND_PF64,
	KIND_PFLD,
	KIND_2F32, /* Fortran's pairs, whose index is a floating-point number too */
	KIND_2F64,
	KIND_COUNT
};

enum action {
	ACTION_MOVE, /* no operation */
	ACTION_MAX,
	ACTION_MIN,
	ACTION_SUM,
	ACTION_PROD,
	ACTION_LAND,
	ACTION_LOR,
	ACTION_LXOR,
	ACTION_BAND,
	ACTION_BOR,
	ACTION_BXOR,
	ACTION_MAXLOC,
	ACTION_MINLOC,
	ACTION_MEET,    /* of users: commutative */
	ACTION_COMPOSE, /* of users: not commutative, value by value */
	ACTION_MATRIX,  /* of users: not commutative, four integers are a matrix */
};

/* Integers are in `bits`, sign-extended. Other values are in `re`, and in `im` the imaginary part or a pair's
 * index. A long double holds each value that is drawn here. */
struct value {
	uint64_t bits;
	long double re, im;
};

size_t kind_size(enum kind kind);
bool kind_is_integer(enum kind kind);
/* The value that `hash` selects. The action decides the range: sums and products of up to eight values stay
 * exact, pairs are often equal, and maxima use the whole range. */
void value_draw(struct value *value, enum kind kind, enum action action, uint64_t hash);
void value_store(const struct value *value, enum kind kind, void *at);
void value_load(struct value *value, enum kind kind, const void *at);
/* With `truth`, all values other than zero are equal. */
bool value_equal(const struct value *a, const struct value *b, enum kind kind, bool truth);
void value_print(const struct value *value, enum kind kind, char *text, size_t bytes);
/* `right` becomes left (action) right. Not for ACTION_MATRIX. */
void value_combine(enum action action, enum kind kind, const struct value *left, struct value *right);
/* The same for four integers that are a matrix, row by row. */
void matrix_combine(enum kind kind, const struct value *left, struct value *right);

#endif
