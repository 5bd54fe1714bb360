/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * library.h - the MPI library behind this one: its binary interface, its functions and its constants.
 *
 * One build serves three binary interfaces: MPICH's, which Intel MPI and MVAPICH share, Open MPI's, and the
 * standard one of MPI 5. They agree on the order and the classes of all parameters used here. A handle is an
 * int in MPICH's and a pointer in the other two, so each handle is a word here. The caller of a function with
 * an int parameter leaves the upper half of the word undefined: handle_of() clears it.
 *
 * The values are facts of the interfaces' headers (mpi.h of MPICH 3.3 to 5.0, mpi.h of Open MPI 4.1 to 5.0,
 * mpi_abi.h of MPI 5.0).
 */
#ifndef VICINAL_COLLECTIVES_LIBRARY_H
#define VICINAL_COLLECTIVES_LIBRARY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uintptr_t handle;

enum abi { ABI_UNKNOWN, ABI_MPICH, ABI_OPEN_MPI, ABI_STANDARD };

/* The same in all three interfaces. */
#define MPI_OK 0

/* Functions of the MPI library that this library calls itself, by their names without PMPI_. */
#define CALLED_FUNCTIONS(each) \
	each(Comm_rank) each(Comm_size) each(Comm_remote_size) each(Comm_test_inter) \
		each(Comm_create_keyval) each(Comm_set_attr) each(Comm_call_errhandler) each(Grequest_start) \
			each(Grequest_complete) each(Test) each(Reduce_local) each(Pack) each(Unpack) \
				each(Type_size_x) each(Type_get_extent) each(Type_get_true_extent)

/* The same for windows. */
#define CALLED_FOR_WINDOWS(each) \
	each(Comm_split) each(Comm_free) each(Get_library_version) each(Type_free) each(Type_get_contents) \
		each(Type_get_envelope) each(Win_call_errhandler)

/* Functions of the MPI library that this library stands before. */
#define REPLACED_FUNCTIONS(each) \
	each(Barrier) each(Bcast) each(Reduce) each(Allreduce) each(Allgather) each(Gather) each(Scatter) \
		each(Alltoall) each(Reduce_scatter_block) each(Scan) each(Exscan) each(Allgatherv) \
			each(Gatherv) each(Scatterv) each(Alltoallv) each(Alltoallw) each(Reduce_scatter) \
				each(Finalize)

/* The same, in version 4 of the standard: the forms with large counts, and sessions. NULL in older libraries.
 */
#define LARGE_FUNCTIONS(each) \
	each(Bcast_c) each(Reduce_c) each(Allreduce_c) each(Allgather_c) each(Gather_c) each(Scatter_c) \
		each(Alltoall_c) each(Reduce_scatter_block_c) each(Scan_c) each(Exscan_c) each(Allgatherv_c) \
			each(Gatherv_c) each(Scatterv_c) each(Alltoallv_c) each(Alltoallw_c) \
				each(Reduce_scatter_c) each(Session_finalize)

/* The same, and not in each MPI library. */
#define OPTIONAL_FOR_WINDOWS(each) each(Info_get)

/* Functions for windows that this library stands before, without and with large counts. */
#define WINDOW_FUNCTIONS(each) \
	each(Comm_split_type) each(Win_allocate_shared) each(Win_shared_query) each(Alloc_mem) each( \
		Free_mem) each(Win_allocate) each(Win_create) each(Win_free) each(Win_get_attr) each(Put) \
		each(Get) each(Rput) each(Rget) each(Accumulate) each(Raccumulate) each(Get_accumulate) \
			each(Rget_accumulate) each(Fetch_and_op) each(Compare_and_swap) each(Win_fence) \
				each(Win_lock) each(Win_unlock) each(Win_lock_all) each(Win_unlock_all) \
					each(Win_flush) each(Win_flush_all) each(Win_flush_local) \
						each(Win_flush_local_all) each(Win_sync) each(Win_post) \
							each(Win_start) each(Win_complete) each(Win_wait) \
								each(Win_test)
#define LARGE_WINDOW_FUNCTIONS(each) \
	each(Win_allocate_shared_c) each(Win_shared_query_c) each(Win_allocate_c) each(Win_create_c) \
		each(Put_c) each(Get_c) each(Rput_c) each(Rget_c) each(Accumulate_c) each(Raccumulate_c) \
			each(Get_accumulate_c) each(Rget_accumulate_c)

#define FUNCTION_INDEX(name) FUNCTION_##name,
enum {
	CALLED_FUNCTIONS(FUNCTION_INDEX) REPLACED_FUNCTIONS(FUNCTION_INDEX) LARGE_FUNCTIONS(FUNCTION_INDEX)
		CALLED_FOR_WINDOWS(FUNCTION_INDEX) WINDOW_FUNCTIONS(FUNCTION_INDEX)
			LARGE_WINDOW_FUNCTIONS(FUNCTION_INDEX) OPTIONAL_FOR_WINDOWS(FUNCTION_INDEX)
				FUNCTION_COUNT
};

typedef void (*mpi_function)(void);

/* Valid after mpi_look_up(). Written once. */
struct mpi_library {
	enum abi abi;
	const void *in_place;
	handle comm_self;
	handle comm_null;
	handle info_null;
	handle byte;
	int error_other;
	atomic_bool known;                      /* stored last */
	void *library;                          /* for dlsym() */
	mpi_function functions[FUNCTION_COUNT]; /* the PMPI_ functions */
	mpi_function tools[FUNCTION_COUNT];     /* the MPI_ function of a profiling tool behind, or NULL */
};
extern struct mpi_library mpi;

/* The rest of mpi_look_up(). */
void mpi_look_up_once(void);

/* Looks all functions up once. Aborts with a text if no MPI library is behind. */
static inline void mpi_look_up(void)
{
	if (__builtin_expect(!atomic_load_explicit(&mpi.known, memory_order_acquire), 0))
		mpi_look_up_once();
}

/*
 * The process's first PMPI function with this index: another preloaded library's, such as
 * libvicinal-pairs.so, or this one's. NULL if there is none.
 */
mpi_function mpi_first(int index);

/* Does the library have all the functions that this library calls? */
bool mpi_is_usable(void);

/* Calls the MPI library's function. Parameter types as in the standard, with `handle` for handles. */
#define MPI_CALL(name, ...) ((int (*)(__VA_ARGS__))mpi.functions[FUNCTION_##name])

static inline bool mpi_is_null_comm(handle comm)
{
	return comm == mpi.comm_null;
}

static inline handle handle_of(handle word)
{
	return mpi.abi == ABI_MPICH ? (uint32_t)word : word;
}

/* For tables of handles. */
static inline uint32_t handle_hash(handle word)
{
	return (uint32_t)((uint64_t)word * UINT64_C(0x9e3779b97f4a7c15) >> 40);
}

/* The address of a symbol of the MPI library, or of a program's copy of it; 0 if there is none. */
handle mpi_symbol(void *library, const char *name);

/* ---- datatypes and operations ---- */

/* Asks the MPI library for the sizes of its datatypes, once. Only after MPI_Init(). */
void mpi_look_up_types(void);

/* For mpi_look_up(). */
void operators_look_up(void *library);

/* out[i] = a[i] op b[i]. `out` may be `a` or `b`. `a` or `b` may lie in the region, where bytes change. */
typedef void reduction(void *out, const void *a, const void *b, size_t count);

/* Types for which there are reductions. */
enum number {
	NUMBER_NONE,
	NUMBER_I8,
	NUMBER_U8,
	NUMBER_I16,
	NUMBER_U16,
	NUMBER_I32,
	NUMBER_U32,
	NUMBER_I64,
	NUMBER_U64,
	NUMBER_F32,
	NUMBER_F64,
	NUMBER_COUNT
};

enum operator{
	OPERATOR_NONE,
	OPERATOR_MAX,
	OPERATOR_MIN,
	OPERATOR_SUM,
	OPERATOR_PROD,
	OPERATOR_LAND,
	OPERATOR_BAND,
	OPERATOR_LOR,
	OPERATOR_BOR,
	OPERATOR_LXOR,
	OPERATOR_BXOR,
	OPERATOR_COUNT
};

/* A predefined datatype without gaps. */
struct basic_type {
	uint32_t size; /* bytes; 0: not such a type */
	enum number number;
	bool bits_only; /* MPI_BYTE: the standard has only bitwise operations for it */
};

/* The last predefined datatype that this thread looked up. */
struct last_type {
	handle type;
	struct basic_type basic;
};
extern __thread __attribute__((tls_model("initial-exec"))) struct last_type mpi_last_type;

/* The rest of mpi_basic_type(). */
struct basic_type mpi_find_type(handle type);

/*
 * For any handle. size is 0 for derived types, pairs, and unknown handles. Programs repeat a datatype, and
 * the table has up to ten probes for a handle of Open MPI, which is an address.
 */
static inline struct basic_type mpi_basic_type(handle type)
{
	const struct last_type *last = &mpi_last_type;

	return __builtin_expect(last->type == type, 1) ? last->basic : mpi_find_type(type);
}

enum operator mpi_operator(handle op);

/* NULL if the pair has no reduction here: then MPI_Reduce_local() does it. */
reduction *find_reduction(struct basic_type type, enum operator op);
/* The same of reductions.c, for any processor and for one with AVX2. */
reduction *reduction_plain(struct basic_type type, enum operator op);
reduction *reduction_avx2(struct basic_type type, enum operator op);

#endif
