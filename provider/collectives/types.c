/* SPDX-License-Identifier: BSD-3-Clause */
/* types.c - the predefined datatypes and operations of the MPI library. */
#include "collectives/library.h"

#include <dlfcn.h>
#include <pthread.h>

/* ---- datatypes ---- */

enum kind { KIND_OPAQUE, KIND_SIGNED, KIND_UNSIGNED, KIND_FLOATING, KIND_BITS };

/*
 * Predefined datatypes without gaps. Pairs with gaps are missing, so they are packed like derived datatypes.
 * Logical types are opaque, because compilers disagree about the value of true.
 */
static const struct {
	const char *open_mpi; /* the symbol whose address is the handle */
	uint32_t mpich;
	uint32_t standard;
	enum kind kind;
} known_types[] = {
	{"ompi_mpi_signed_char", 0x4c000118, 0x244, KIND_SIGNED},
	{"ompi_mpi_short", 0x4c000203, 0x208, KIND_SIGNED},
	{"ompi_mpi_int", 0x4c000405, 0x209, KIND_SIGNED},
	{"ompi_mpi_long", 0x4c000807, 0x20a, KIND_SIGNED},
	{"ompi_mpi_long_long_int", 0x4c000809, 0x20b, KIND_SIGNED},
	{"ompi_mpi_int8_t", 0x4c000137, 0x240, KIND_SIGNED},
	{"ompi_mpi_int16_t", 0x4c000238, 0x248, KIND_SIGNED},
	{"ompi_mpi_int32_t", 0x4c000439, 0x250, KIND_SIGNED},
	{"ompi_mpi_int64_t", 0x4c00083a, 0x258, KIND_SIGNED},
	{"ompi_mpi_aint", 0x4c000843, 0x201, KIND_SIGNED},
	{"ompi_mpi_offset", 0x4c000844, 0x203, KIND_SIGNED},
	{"ompi_mpi_count", 0x4c000845, 0x202, KIND_SIGNED},
	{"ompi_mpi_integer", 0x4c00041b, 0x219, KIND_SIGNED},
	{"ompi_mpi_integer1", 0x4c00012d, 0x2c1, KIND_SIGNED},
	{"ompi_mpi_integer2", 0x4c00022f, 0x2c9, KIND_SIGNED},
	{"ompi_mpi_integer4", 0x4c000430, 0x2d1, KIND_SIGNED},
	{"ompi_mpi_integer8", 0x4c000831, 0x2d9, KIND_SIGNED},
	{"ompi_mpi_unsigned_char", 0x4c000102, 0x245, KIND_UNSIGNED},
	{"ompi_mpi_unsigned_short", 0x4c000204, 0x20c, KIND_UNSIGNED},
	{"ompi_mpi_unsigned", 0x4c000406, 0x20d, KIND_UNSIGNED},
	{"ompi_mpi_unsigned_long", 0x4c000808, 0x20e, KIND_UNSIGNED},
	{"ompi_mpi_unsigned_long_long", 0x4c000819, 0x20f, KIND_UNSIGNED},
	{"ompi_mpi_uint8_t", 0x4c00013b, 0x241, KIND_UNSIGNED},
	{"ompi_mpi_uint16_t", 0x4c00023c, 0x249, KIND_UNSIGNED},
	{"ompi_mpi_uint32_t", 0x4c00043d, 0x251, KIND_UNSIGNED},
	{"ompi_mpi_uint64_t", 0x4c00083e, 0x259, KIND_UNSIGNED},
	{"ompi_mpi_float", 0x4c00040a, 0x210, KIND_FLOATING},
	{"ompi_mpi_double", 0x4c00080b, 0x214, KIND_FLOATING},
	{"ompi_mpi_real", 0x4c00041c, 0x21a, KIND_FLOATING},
	{"ompi_mpi_dblprec", 0x4c00081f, 0x21c, KIND_FLOATING},
	{"ompi_mpi_real4", 0x4c000427, 0x2d2, KIND_FLOATING},
	{"ompi_mpi_real8", 0x4c000829, 0x2da, KIND_FLOATING},
	{"ompi_mpi_byte", 0x4c00010d, 0x247, KIND_BITS},
	{"ompi_mpi_char", 0x4c000101, 0x243, KIND_OPAQUE},
	{"ompi_mpi_wchar", 0x4c00040e, 0x23c, KIND_OPAQUE},
	{"ompi_mpi_packed", 0x4c00010f, 0x207, KIND_OPAQUE},
	{"ompi_mpi_long_double", 0x4c00100c, 0x220, KIND_OPAQUE},
	{"ompi_mpi_character", 0x4c00011a, 0x21e, KIND_OPAQUE},
	{"ompi_mpi_logical", 0x4c00041d, 0x218, KIND_OPAQUE},
	{"ompi_mpi_logical1", 0x4c000147, 0x2c0, KIND_OPAQUE},
	{"ompi_mpi_logical2", 0x4c000248, 0x2c8, KIND_OPAQUE},
	{"ompi_mpi_logical4", 0x4c000449, 0x2d0, KIND_OPAQUE},
	{"ompi_mpi_logical8", 0x4c00084a, 0x2d8, KIND_OPAQUE},
	{NULL, 0x4c00104b, 0x2e0, KIND_OPAQUE},
	{"ompi_mpi_integer16", 0x4c001032, 0x2e1, KIND_OPAQUE},
	{"ompi_mpi_real2", 0x4c000226, 0x2ca, KIND_OPAQUE},
	{"ompi_mpi_real16", 0x4c00102b, 0x2e2, KIND_OPAQUE},
	{"ompi_mpi_cplex", 0x4c00081e, 0x21b, KIND_OPAQUE},
	{"ompi_mpi_dblcplex", 0x4c001022, 0x21d, KIND_OPAQUE},
	{"ompi_mpi_complex4", 0x4c00042e, 0x2d3, KIND_OPAQUE},
	{"ompi_mpi_complex8", 0x4c000828, 0x2db, KIND_OPAQUE},
	{"ompi_mpi_complex16", 0x4c00102a, 0x2e3, KIND_OPAQUE},
	{"ompi_mpi_complex32", 0x4c00202c, 0x2eb, KIND_OPAQUE},
	{"ompi_mpi_c_bool", 0x4c00013f, 0x238, KIND_OPAQUE},
	{"ompi_mpi_c_float_complex", 0x4c000840, 0x212, KIND_OPAQUE},
	{"ompi_mpi_c_double_complex", 0x4c001041, 0x216, KIND_OPAQUE},
	{"ompi_mpi_c_long_double_complex", 0x4c002042, 0x224, KIND_OPAQUE},
	{"ompi_mpi_cxx_bool", 0x4c000133, 0x239, KIND_OPAQUE},
	{"ompi_mpi_cxx_cplex", 0x4c000834, 0x213, KIND_OPAQUE},
	{"ompi_mpi_cxx_dblcplex", 0x4c001035, 0x217, KIND_OPAQUE},
	{"ompi_mpi_cxx_ldblcplex", 0x4c002036, 0x225, KIND_OPAQUE},
	{"ompi_mpi_2int", 0x4c000816, 0x22b, KIND_OPAQUE},
	{"ompi_mpi_2real", 0x4c000821, 0x230, KIND_OPAQUE},
	{"ompi_mpi_2dblprec", 0x4c001023, 0x231, KIND_OPAQUE},
	{"ompi_mpi_2integer", 0x4c000820, 0x232, KIND_OPAQUE},
};

#define KNOWN_TYPES (sizeof(known_types) / sizeof(known_types[0]))
#define TABLE_SIZE 256U /* a power of two, at least twice KNOWN_TYPES */
_Static_assert(KNOWN_TYPES * 2 <= TABLE_SIZE, "the table needs free entries");

static struct {
	handle type;
	struct basic_type basic;
} table[TABLE_SIZE];

static uint32_t place_of(handle type)
{
	return handle_hash(type) % TABLE_SIZE;
}

/* No datatype has the handle 0. */
__thread __attribute__((tls_model("initial-exec"))) struct last_type mpi_last_type;

struct basic_type mpi_find_type(handle type)
{
	for (uint32_t i = place_of(type); table[i].basic.size != 0; i = (i + 1) % TABLE_SIZE)
		if (table[i].type == type) {
			mpi_last_type = (struct last_type){type, table[i].basic};
			return table[i].basic;
		}
	return (struct basic_type){0, NUMBER_NONE, false};
}

static enum number number_of(enum kind kind, uint32_t size)
{
	switch (kind) {
	case KIND_SIGNED:
		return size == 1   ? NUMBER_I8
		       : size == 2 ? NUMBER_I16
		       : size == 4 ? NUMBER_I32
		       : size == 8 ? NUMBER_I64
				   : NUMBER_NONE;
	case KIND_BITS:
	case KIND_UNSIGNED:
		return size == 1   ? NUMBER_U8
		       : size == 2 ? NUMBER_U16
		       : size == 4 ? NUMBER_U32
		       : size == 8 ? NUMBER_U64
				   : NUMBER_NONE;
	case KIND_FLOATING:
		return size == 4 ? NUMBER_F32 : size == 8 ? NUMBER_F64 : NUMBER_NONE;
	default:
		return NUMBER_NONE;
	}
}

handle mpi_symbol(void *library, const char *name)
{
	void *found = dlsym(RTLD_DEFAULT, name);

	return (handle)(found != NULL ? found : dlsym(library, name));
}

static void look_up_types(void)
{
	for (size_t i = 0; i < KNOWN_TYPES; i++) {
		handle type = mpi.abi == ABI_MPICH ? known_types[i].mpich : known_types[i].standard;
		int64_t size = 0;

		if (mpi.abi == ABI_OPEN_MPI)
			type = known_types[i].open_mpi != NULL
				       ? mpi_symbol(mpi.library, known_types[i].open_mpi)
				       : 0;
		/* A library may lack an optional type: then its size is MPI_UNDEFINED, or the call fails. */
		if (type == 0 || mpi_basic_type(type).size != 0 ||
		    MPI_CALL(Type_size_x, handle, int64_t *)(type, &size) != MPI_OK || size <= 0 || size > 64)
			continue;
		uint32_t at = place_of(type);
		while (table[at].basic.size != 0)
			at = (at + 1) % TABLE_SIZE;
		table[at].type = type;
		table[at].basic = (struct basic_type){
			.size = (uint32_t)size,
			.number = number_of(known_types[i].kind, (uint32_t)size),
			.bits_only = known_types[i].kind == KIND_BITS,
		};
	}
}

void mpi_look_up_types(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, look_up_types);
}

/* ---- operations ---- */

static const struct {
	const char *open_mpi;
	uint32_t mpich;
	uint32_t standard;
} known_operators[OPERATOR_COUNT] = {
	[OPERATOR_MAX] = {"ompi_mpi_op_max", 0x58000001, 0x23},
	[OPERATOR_MIN] = {"ompi_mpi_op_min", 0x58000002, 0x22},
	[OPERATOR_SUM] = {"ompi_mpi_op_sum", 0x58000003, 0x21},
	[OPERATOR_PROD] = {"ompi_mpi_op_prod", 0x58000004, 0x24},
	[OPERATOR_LAND] = {"ompi_mpi_op_land", 0x58000005, 0x30},
	[OPERATOR_BAND] = {"ompi_mpi_op_band", 0x58000006, 0x28},
	[OPERATOR_LOR] = {"ompi_mpi_op_lor", 0x58000007, 0x31},
	[OPERATOR_BOR] = {"ompi_mpi_op_bor", 0x58000008, 0x29},
	[OPERATOR_LXOR] = {"ompi_mpi_op_lxor", 0x58000009, 0x32},
	[OPERATOR_BXOR] = {"ompi_mpi_op_bxor", 0x5800000a, 0x2a},
};

static handle operators[OPERATOR_COUNT];

void operators_look_up(void *library)
{
	for (int i = OPERATOR_NONE + 1; i < OPERATOR_COUNT; i++)
		operators[i] = mpi.abi == ABI_MPICH      ? known_operators[i].mpich
			       : mpi.abi == ABI_STANDARD ? known_operators[i].standard
							 : mpi_symbol(library, known_operators[i].open_mpi);
}

enum operator mpi_operator(handle op)
{
	for (int i = OPERATOR_NONE + 1; i < OPERATOR_COUNT; i++)
		if (operators[i] == op)
			return (enum operator)i;
	return OPERATOR_NONE;
}

reduction *find_reduction(struct basic_type type, enum operator op)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx2"))
		return reduction_avx2(type, op);
#endif
	return reduction_plain(type, op);
}
