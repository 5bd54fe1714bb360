/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * reductions.c - element-wise reductions of numbers.
 *
 * An operand may lie in the region, where a peer may change it meanwhile. That can only change the result's
 * value: no address, count or branch target depends on an element.
 *
 * Compiled twice on x86-64: the second time for processors with AVX2, which add twice as fast in the first
 * cache. Each element is computed alike in both.
 */
#include "collectives/library.h"

#if defined(REDUCTIONS_AVX2)
#define REDUCTION_OF reduction_avx2
#else
#define REDUCTION_OF reduction_plain
#endif

/* MPI does not define which of two zeros is greater, nor the result for a NaN. */
#define MAX_OF(a, b) ((a) > (b) ? (a) : (b))
#define MIN_OF(a, b) ((a) < (b) ? (a) : (b))
#define SUM_OF(a, b) ((a) + (b))
#define PROD_OF(a, b) ((a) * (b))
#define LAND_OF(a, b) ((a) != 0 && (b) != 0)
#define LOR_OF(a, b) ((a) != 0 || (b) != 0)
#define LXOR_OF(a, b) (((a) != 0) != ((b) != 0))
#define BAND_OF(a, b) ((a) & (b))
#define BOR_OF(a, b) ((a) | (b))
#define BXOR_OF(a, b) ((a) ^ (b))

/*
 * The buffers may be unaligned for their type, because MPI allows any address that the processor can load.
 * Packed access costs nothing on x86-64 and arm64.
 */
#define DEFINE(name, type, of) \
	static void name(void *out, const void *a, const void *b, size_t count) \
	{ \
		struct element { \
			type value; \
		} __attribute__((packed, may_alias)); \
		struct element *to = out; \
		const struct element *first = a; \
		const struct element *second = b; \
		for (size_t i = 0; i < count; i++) { \
			type x = first[i].value; \
			type y = second[i].value; \
			to[i].value = (type)(of(x, y)); \
		} \
	}

/* Sums and products of signed integers wrap, so they are computed without a sign. */
#define DEFINE_INTEGER(short_name, type, unsigned_type) \
	DEFINE(max_##short_name, type, MAX_OF) \
	DEFINE(min_##short_name, type, MIN_OF) \
	DEFINE(sum_##short_name, unsigned_type, SUM_OF) \
	DEFINE(prod_##short_name, unsigned_type, PROD_OF) \
	DEFINE(land_##short_name, type, LAND_OF) \
	DEFINE(band_##short_name, unsigned_type, BAND_OF) \
	DEFINE(lor_##short_name, type, LOR_OF) \
	DEFINE(bor_##short_name, unsigned_type, BOR_OF) \
	DEFINE(lxor_##short_name, type, LXOR_OF) \
	DEFINE(bxor_##short_name, unsigned_type, BXOR_OF)

#define DEFINE_FLOATING(short_name, type) \
	DEFINE(max_##short_name, type, MAX_OF) \
	DEFINE(min_##short_name, type, MIN_OF) \
	DEFINE(sum_##short_name, type, SUM_OF) \
	DEFINE(prod_##short_name, type, PROD_OF)

DEFINE_INTEGER(i8, int8_t, uint8_t)
DEFINE_INTEGER(u8, uint8_t, uint8_t)
DEFINE_INTEGER(i16, int16_t, uint16_t)
DEFINE_INTEGER(u16, uint16_t, uint16_t)
DEFINE_INTEGER(i32, int32_t, uint32_t)
DEFINE_INTEGER(u32, uint32_t, uint32_t)
DEFINE_INTEGER(i64, int64_t, uint64_t)
DEFINE_INTEGER(u64, uint64_t, uint64_t)
DEFINE_FLOATING(f32, float)
DEFINE_FLOATING(f64, double)

#define FLOATING_ROW(short_name) \
	{ \
		[OPERATOR_MAX] = max_##short_name, [OPERATOR_MIN] = min_##short_name, \
		[OPERATOR_SUM] = sum_##short_name, [OPERATOR_PROD] = prod_##short_name, \
	}
#define INTEGER_ROW(short_name) \
	{ \
		[OPERATOR_MAX] = max_##short_name, [OPERATOR_MIN] = min_##short_name, \
		[OPERATOR_SUM] = sum_##short_name, [OPERATOR_PROD] = prod_##short_name, \
		[OPERATOR_LAND] = land_##short_name, [OPERATOR_BAND] = band_##short_name, \
		[OPERATOR_LOR] = lor_##short_name, [OPERATOR_BOR] = bor_##short_name, \
		[OPERATOR_LXOR] = lxor_##short_name, [OPERATOR_BXOR] = bxor_##short_name, \
	}

static reduction *const reductions[NUMBER_COUNT][OPERATOR_COUNT] = {
	[NUMBER_I8] = INTEGER_ROW(i8),    [NUMBER_U8] = INTEGER_ROW(u8),   [NUMBER_I16] = INTEGER_ROW(i16),
	[NUMBER_U16] = INTEGER_ROW(u16),  [NUMBER_I32] = INTEGER_ROW(i32), [NUMBER_U32] = INTEGER_ROW(u32),
	[NUMBER_I64] = INTEGER_ROW(i64),  [NUMBER_U64] = INTEGER_ROW(u64), [NUMBER_F32] = FLOATING_ROW(f32),
	[NUMBER_F64] = FLOATING_ROW(f64),
};

reduction *REDUCTION_OF(struct basic_type type, enum operator op)
{
	bool bitwise = op == OPERATOR_BAND || op == OPERATOR_BOR || op == OPERATOR_BXOR;

	return type.bits_only && !bitwise ? NULL : reductions[type.number][op];
}
