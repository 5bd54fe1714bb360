/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * atomic_operations.c - a function for each datatype and operation, made by macros, and
 * the table of them.
 */
#include "proto/atomic_operations.h"

#include <complex.h>
#include <pthread.h>
#include <string.h>

typedef float complex float_complex;
typedef double complex double_complex;
typedef long double long_double;
typedef long double complex long_double_complex;
#ifdef __SIZEOF_INT128__
__extension__ typedef __int128 int128;
__extension__ typedef unsigned __int128 uint128;
#endif

/* FI_INT128 and FI_UINT128 come after the others; libfabric 2 has FI_DIFF after them all. */
#define DATATYPES ((uint32_t)FI_UINT128 + 1)
#if FI_MAJOR_VERSION >= 2
#define OPERATIONS ((uint32_t)FI_DIFF + 1)
#else
#define OPERATIONS ((uint32_t)FI_ATOMIC_OP_LAST)
#endif

typedef void (*atomic_function)(unsigned char *target, const unsigned char *operand,
				const unsigned char *compare, unsigned char *result, size_t count);

/* NOLINTBEGIN(bugprone-macro-parentheses): types take none. */
/*
 * The new value by `expression`, of x (what is there), y (the operand) and c (what it is
 * compared with). WORDS_OF: by compare-and-swap, until nobody came between. A peer that may write the
 * memory cannot keep us in it: it has to hit the few nanoseconds between two instructions at every
 * try. One that does nothing but store there made it five tries at most in 80 million, and one in
 * ten more than one: docs/decisions/0008.
 */
#define WORDS_OF(name, type, bits, expression) \
	static void name(unsigned char *target, const unsigned char *operand, const unsigned char *compare, \
			 unsigned char *result, size_t count) \
	{ \
		for (size_t i = 0; i < count; i++) { \
			bits *word = (bits *)(void *)target + i; \
			bits before = __atomic_load_n(word, __ATOMIC_RELAXED); \
			bits after = 0; \
			type x = 0; \
			type y = 0; \
			type c = 0; \
			memcpy(&y, operand + i * sizeof(type), sizeof(type)); \
			if (compare != NULL) \
				memcpy(&c, compare + i * sizeof(type), sizeof(type)); \
			(void)c; \
			do { \
				memcpy(&x, &before, sizeof(type)); \
				type z = (type)(expression); \
				memcpy(&after, &z, sizeof(type)); \
			} while (!__atomic_compare_exchange_n(word, &before, after, true, __ATOMIC_ACQ_REL, \
							      __ATOMIC_RELAXED)); \
			if (result != NULL) \
				memcpy(result + i * sizeof(type), &before, sizeof(type)); \
		} \
	}

/* The same under the lock of atomic_apply(), for elements that no instruction changes whole. */
#define LOCKED_OF(name, type, expression) \
	static void name(unsigned char *target, const unsigned char *operand, const unsigned char *compare, \
			 unsigned char *result, size_t count) \
	{ \
		for (size_t i = 0; i < count; i++) { \
			type x = 0; \
			type y = 0; \
			type c = 0; \
			memcpy(&x, target + i * sizeof(type), sizeof(type)); \
			memcpy(&y, operand + i * sizeof(type), sizeof(type)); \
			if (compare != NULL) \
				memcpy(&c, compare + i * sizeof(type), sizeof(type)); \
			(void)c; \
			type z = (type)(expression); \
			if (result != NULL) \
				memcpy(result + i * sizeof(type), &x, sizeof(type)); \
			memcpy(target + i * sizeof(type), &z, sizeof(type)); \
		} \
	}
/* NOLINTEND(bugprone-macro-parentheses) */

/* A read writes nothing: the memory may be registered for reading alone. */
#define WORDS_READ(type, bits) \
	static void type##_read(unsigned char *target, const unsigned char *operand, \
				const unsigned char *compare, unsigned char *result, size_t count) \
	{ \
		(void)operand; \
		(void)compare; \
		for (size_t i = 0; i < count; i++) { \
			bits value = __atomic_load_n((bits *)(void *)target + i, __ATOMIC_ACQUIRE); \
			memcpy(result + i * sizeof(type), &value, sizeof(type)); \
		} \
	}

#define LOCKED_READ(type) \
	static void type##_read(unsigned char *target, const unsigned char *operand, \
				const unsigned char *compare, unsigned char *result, size_t count) \
	{ \
		(void)operand; \
		(void)compare; \
		memcpy(result, target, count * sizeof(type)); \
	}

/* Each takes OF, which is WORDS_OF or LOCKED_OF with `...` as what stands between. */
#define FOR_ALL(OF, type, ...) \
	OF(type##_sum, __VA_ARGS__, x + y) \
	OF(type##_prod, __VA_ARGS__, x *y) \
	FOR_LOGIC(OF, type, __VA_ARGS__)

#define FOR_LOGIC(OF, type, ...) \
	OF(type##_lor, __VA_ARGS__, (x != 0) || (y != 0)) \
	OF(type##_land, __VA_ARGS__, (x != 0) && (y != 0)) \
	OF(type##_lxor, __VA_ARGS__, (x != 0) != (y != 0)) \
	OF(type##_write, __VA_ARGS__, y) \
	OF(type##_cswap, __VA_ARGS__, c == x ? y : x) \
	OF(type##_cswap_ne, __VA_ARGS__, c != x ? y : x) \
	FOR_DIFF(OF, type, __VA_ARGS__)

/* Of what has an order. */
#define FOR_ORDERED(OF, type, ...) \
	OF(type##_min, __VA_ARGS__, y < x ? y : x) \
	OF(type##_max, __VA_ARGS__, y > x ? y : x) \
	OF(type##_cswap_le, __VA_ARGS__, c <= x ? y : x) \
	OF(type##_cswap_lt, __VA_ARGS__, c < x ? y : x) \
	OF(type##_cswap_ge, __VA_ARGS__, c >= x ? y : x) \
	OF(type##_cswap_gt, __VA_ARGS__, c > x ? y : x)

/* Of integers; `wide` is unsigned and has all of their bits: there sums may wrap. */
#define FOR_INTEGERS(OF, type, wide, ...) \
	OF(type##_sum, __VA_ARGS__, (wide)x + (wide)y) \
	OF(type##_prod, __VA_ARGS__, (wide)x *(wide)y) \
	OF(type##_bor, __VA_ARGS__, x | y) \
	OF(type##_band, __VA_ARGS__, x &y) \
	OF(type##_bxor, __VA_ARGS__, x ^ y) \
	OF(type##_mswap, __VA_ARGS__, (y & c) | (x & ~c)) \
	FOR_LOGIC(OF, type, __VA_ARGS__) \
	FOR_ORDERED(OF, type, __VA_ARGS__)

#if FI_MAJOR_VERSION >= 2
#define FOR_DIFF(OF, type, ...) OF(type##_diff, __VA_ARGS__, x - y)
#define ENTRY_DIFF(type) , [FI_DIFF] = type##_diff
#else
#define FOR_DIFF(OF, type, ...)
#define ENTRY_DIFF(type)
#endif

#define INTEGER(type, bits) \
	FOR_INTEGERS(WORDS_OF, type, uint64_t, type, bits) \
	WORDS_READ(type, bits)

INTEGER(int8_t, uint8_t)
INTEGER(uint8_t, uint8_t)
INTEGER(int16_t, uint16_t)
INTEGER(uint16_t, uint16_t)
INTEGER(int32_t, uint32_t)
INTEGER(uint32_t, uint32_t)
INTEGER(int64_t, uint64_t)
INTEGER(uint64_t, uint64_t)
FOR_ALL(WORDS_OF, float, float, uint32_t)
FOR_ORDERED(WORDS_OF, float, float, uint32_t)
WORDS_READ(float, uint32_t)
FOR_ALL(WORDS_OF, double, double, uint64_t)
FOR_ORDERED(WORDS_OF, double, double, uint64_t)
WORDS_READ(double, uint64_t)
FOR_ALL(WORDS_OF, float_complex, float_complex, uint64_t)
WORDS_READ(float_complex, uint64_t)
/* A float complex need only be aligned as a float is: see atomic_is_native(). */
typedef float complex straying_complex;
FOR_ALL(LOCKED_OF, straying_complex, straying_complex)
LOCKED_READ(straying_complex)
FOR_ALL(LOCKED_OF, double_complex, double_complex)
LOCKED_READ(double_complex)
FOR_ALL(LOCKED_OF, long_double, long_double)
FOR_ORDERED(LOCKED_OF, long_double, long_double)
LOCKED_READ(long_double)
FOR_ALL(LOCKED_OF, long_double_complex, long_double_complex)
LOCKED_READ(long_double_complex)
#ifdef __SIZEOF_INT128__
FOR_INTEGERS(LOCKED_OF, int128, uint128, int128)
LOCKED_READ(int128)
FOR_INTEGERS(LOCKED_OF, uint128, uint128, uint128)
LOCKED_READ(uint128)
#endif

#define ENTRY_ANY(type) \
	[FI_SUM] = type##_sum, [FI_PROD] = type##_prod, [FI_LOR] = type##_lor, [FI_LAND] = type##_land, \
	[FI_LXOR] = type##_lxor, [FI_ATOMIC_READ] = type##_read, [FI_ATOMIC_WRITE] = type##_write, \
	[FI_CSWAP] = type##_cswap, [FI_CSWAP_NE] = type##_cswap_ne ENTRY_DIFF(type)
#define ENTRY_ORDERED(type) \
	ENTRY_ANY(type), [FI_MIN] = type##_min, [FI_MAX] = type##_max, [FI_CSWAP_LE] = type##_cswap_le, \
			 [FI_CSWAP_LT] = type##_cswap_lt, [FI_CSWAP_GE] = type##_cswap_ge, \
			 [FI_CSWAP_GT] = type##_cswap_gt
#define ENTRY_INTEGER(type) \
	ENTRY_ORDERED(type), [FI_BOR] = type##_bor, [FI_BAND] = type##_band, [FI_BXOR] = type##_bxor, \
			     [FI_MSWAP] = type##_mswap

static const atomic_function functions[DATATYPES][OPERATIONS] = {
	[FI_INT8] = {ENTRY_INTEGER(int8_t)},
	[FI_UINT8] = {ENTRY_INTEGER(uint8_t)},
	[FI_INT16] = {ENTRY_INTEGER(int16_t)},
	[FI_UINT16] = {ENTRY_INTEGER(uint16_t)},
	[FI_INT32] = {ENTRY_INTEGER(int32_t)},
	[FI_UINT32] = {ENTRY_INTEGER(uint32_t)},
	[FI_INT64] = {ENTRY_INTEGER(int64_t)},
	[FI_UINT64] = {ENTRY_INTEGER(uint64_t)},
	[FI_FLOAT] = {ENTRY_ORDERED(float)},
	[FI_DOUBLE] = {ENTRY_ORDERED(double)},
	[FI_FLOAT_COMPLEX] = {ENTRY_ANY(float_complex)},
	[FI_DOUBLE_COMPLEX] = {ENTRY_ANY(double_complex)},
	[FI_LONG_DOUBLE] = {ENTRY_ORDERED(long_double)},
	[FI_LONG_DOUBLE_COMPLEX] = {ENTRY_ANY(long_double_complex)},
#ifdef __SIZEOF_INT128__
	[FI_INT128] = {ENTRY_INTEGER(int128)},
	[FI_UINT128] = {ENTRY_INTEGER(uint128)},
#endif
};

static const atomic_function straying[OPERATIONS] = {ENTRY_ANY(straying_complex)};

static const struct {
	uint8_t bytes;
	uint8_t alignment;
} elements[DATATYPES] = {
	[FI_INT8] = {1, 1},
	[FI_UINT8] = {1, 1},
	[FI_INT16] = {2, 2},
	[FI_UINT16] = {2, 2},
	[FI_INT32] = {4, 4},
	[FI_UINT32] = {4, 4},
	[FI_INT64] = {8, 8},
	[FI_UINT64] = {8, 8},
	[FI_FLOAT] = {4, 4},
	[FI_DOUBLE] = {8, 8},
	[FI_FLOAT_COMPLEX] = {8, _Alignof(float_complex)},
	[FI_DOUBLE_COMPLEX] = {16, _Alignof(double_complex)},
	[FI_LONG_DOUBLE] = {sizeof(long_double), _Alignof(long_double)},
	[FI_LONG_DOUBLE_COMPLEX] = {sizeof(long_double_complex), _Alignof(long_double_complex)},
#ifdef __SIZEOF_INT128__
	[FI_INT128] = {16, _Alignof(int128)},
	[FI_UINT128] = {16, _Alignof(uint128)},
#endif
};
_Static_assert(sizeof(long_double_complex) <= ATOMIC_ELEMENT_BYTES_MAX, "the longest element");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void atomic_operations_lock(void)
{
	(void)pthread_mutex_lock(&lock);
}

void atomic_operations_unlock(void)
{
	(void)pthread_mutex_unlock(&lock);
}

size_t atomic_element_bytes(uint32_t datatype)
{
	return datatype < DATATYPES ? elements[datatype].bytes : 0;
}

size_t atomic_alignment(uint32_t datatype)
{
	return elements[datatype].alignment;
}

bool atomic_is_valid(uint32_t datatype, uint32_t operation, uint32_t form)
{
	if (datatype >= DATATYPES || operation >= OPERATIONS || functions[datatype][operation] == NULL)
		return false;
	bool compares = operation >= FI_CSWAP && operation <= FI_MSWAP;

	switch (form) {
	case ATOMIC_BASE:
		return !compares && operation != FI_ATOMIC_READ;
	case ATOMIC_FETCH:
		return !compares;
	case ATOMIC_COMPARE:
		return compares;
	default:
		return false;
	}
}

bool atomic_is_native(uint32_t datatype, uintptr_t address)
{
	return elements[datatype].bytes <= 8 && address % elements[datatype].bytes == 0;
}

void atomic_apply(uint32_t datatype, uint32_t operation, void *target, const void *operand,
		  const void *compare, void *result, size_t count)
{
	bool native = atomic_is_native(datatype, (uintptr_t)target);
	atomic_function function = functions[datatype][operation];

	if (!native) {
		if (datatype == FI_FLOAT_COMPLEX)
			function = straying[operation];
		atomic_operations_lock();
	}
	function(target, operand, compare, result, count);
	if (!native)
		atomic_operations_unlock();
}
