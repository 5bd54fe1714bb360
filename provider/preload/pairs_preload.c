/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pairs_preload.c - libvicinal-pairs.so: makes Open MPI's one-sided accumulates of pairs correct.
 *
 * Open MPI's osc rdma (4.1.4 to 5.0.11, over any btl) moves the bytes of a predefined type without the gaps
 * between elements. Of several MPI_DOUBLE_INT, MPI_LONG_INT or MPI_LONG_DOUBLE_INT, all but the first are
 * wrong. MPI_SHORT_INT has a gap inside, so even one element is wrong. No setting of osc rdma avoids this,
 * and no other osc carries all of these types. As one element of a derived type, the first three are correct,
 * so the library passes them on in that form. MPI_SHORT_INT gives an error instead of wrong data.
 *
 * The library is loaded by LD_PRELOAD, in front of libmpi. Open MPI's handles are addresses of its symbols,
 * so no header of Open MPI is needed. Fortran's functions call the PMPI functions. If all tasks of a job have
 * the same variables, as in Slurm, programs of other MPI libraries load the library too: their calls pass
 * unchanged.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "preload/next_library.h"

#define VISIBLE __attribute__((visibility("default")))

enum { SUCCESS = 0, ERR_TYPE = 3, ERR_NO_MEM = 39, COMBINER_NAMED = 0 };

typedef void *handle;
typedef void (*function)(void);

/* A derived type of `count` elements. Never freed, because operations may use it for a long time. */
struct run {
	struct run *next;
	handle element;
	int count;
	handle type;
};

static pthread_mutex_t runs_lock = PTHREAD_MUTEX_INITIALIZER;
static struct run *runs;

/* Functions of libmpi, the next library, by their names without PMPI_. */
#define FUNCTIONS(each) \
	each(Accumulate) each(Raccumulate) each(Get_accumulate) each(Rget_accumulate) each(Fetch_and_op) \
		each(Type_contiguous) each(Type_commit) each(Type_free) each(Type_get_envelope) \
			each(Type_get_contents) each(Win_call_errhandler)

#define INDEX(name) INDEX_##name,
enum { FUNCTIONS(INDEX) FUNCTION_COUNT };
#define NAME(name) "PMPI_" #name,
static const char *const names[] = {FUNCTIONS(NAME)};

/* Looked up once, because a lookup takes longer than a short one-sided operation. */
static pthread_once_t look_up_once = PTHREAD_ONCE_INIT;
static function functions[FUNCTION_COUNT];
static handle null_type;
static handle short_int;
static handle double_int;
static handle long_int;
static handle longdbl_int;

/* A program that is linked with libmpi may contain a copy of the type, which all libraries then use. */
static handle find_type(void *library, const char *name)
{
	handle found = dlsym(RTLD_DEFAULT, name);

	return found != NULL ? found : dlsym(library, name);
}

static void look_up(void)
{
	/* Not by a function that libvicinal-mpi.so replaces too: the MPI library must be found. */
	void *library = next_library(names[INDEX_Type_contiguous]);

	for (int i = 0; i < FUNCTION_COUNT; i++) {
		/* libvicinal-mpi.so, if it comes next, else the MPI library. */
		void *found = dlsym(RTLD_NEXT, names[i]);
		if (found == NULL && library != NULL)
			found = dlsym(library, names[i]);
		if (found == NULL) {
			(void)fprintf(stderr,
				      "vicinal: error: libvicinal-pairs.so finds no %s: remove the library "
				      "from LD_PRELOAD, and use no accumulates of pairs with gaps\n",
				      names[i]);
			abort();
		}
		memcpy(&functions[i], &found, sizeof(found));
	}
	null_type = find_type(library, "ompi_mpi_datatype_null");
	short_int = find_type(library, "ompi_mpi_short_int");
	double_int = find_type(library, "ompi_mpi_double_int");
	long_int = find_type(library, "ompi_mpi_long_int");
	longdbl_int = find_type(library, "ompi_mpi_longdbl_int");
}

/* Only after look_up(). */
#define REAL(name, ...) ((int (*)(__VA_ARGS__))functions[INDEX_##name])

/* Only after look_up(). With other MPI libraries, handles are never compared. */
static bool is_open_mpi(void)
{
	return double_int != NULL;
}

static bool has_gap_inside(handle type)
{
	return type != NULL && type == short_int;
}

static bool has_gap_behind(handle type)
{
	return type != NULL && (type == double_int || type == long_int || type == longdbl_int);
}

/*
 * The last predefined type without gaps, because programs repeat it: it needs no more of look_up() and of the
 * rest, which take a third of a short operation. NULL until look_up().
 */
static _Atomic(handle) last_plain;

static bool is_plain(handle type)
{
	return type != NULL && type == atomic_load_explicit(&last_plain, memory_order_acquire);
}

/* Whether the type is, or is derived from, a type with a gap inside. */
static bool contains_gap(handle type)
{
	int integers = 0;
	int addresses = 0;
	int types = 0;
	int combiner = COMBINER_NAMED;
	bool found = false;

	if (!is_open_mpi() || type == NULL || type == null_type)
		return false;
	if (has_gap_inside(type))
		return true;
	if (REAL(Type_get_envelope, handle, int *, int *, int *, int *)(type, &integers, &addresses, &types,
									&combiner) != SUCCESS)
		return false;
	if (combiner == COMBINER_NAMED && !has_gap_behind(type))
		atomic_store_explicit(&last_plain, type, memory_order_release);
	if (combiner == COMBINER_NAMED || types <= 0)
		return false;
	int *numbers = calloc((size_t)integers + 1, sizeof(*numbers));
	ptrdiff_t *displacements = calloc((size_t)addresses + 1, sizeof(*displacements));
	handle *parts = calloc((size_t)types, sizeof(*parts));
	if (numbers != NULL && displacements != NULL && parts != NULL &&
	    REAL(Type_get_contents, handle, int, int, int, int *, ptrdiff_t *,
		 handle *)(type, integers, addresses, types, numbers, displacements, parts) == SUCCESS)
		for (int i = 0; i < types; i++) {
			int kind = COMBINER_NAMED;
			found = found || contains_gap(parts[i]);
			(void)REAL(Type_get_envelope, handle, int *, int *, int *,
				   int *)(parts[i], &integers, &addresses, &combiner, &kind);
			if (kind != COMBINER_NAMED)
				(void)REAL(Type_free, handle *)(&parts[i]);
		}
	free(numbers);
	free(displacements);
	free(parts);
	return found;
}

static int refuse(handle window)
{
	(void)fprintf(stderr,
		      "vicinal: error: Open MPI gets one-sided accumulates of MPI_SHORT_INT wrong, over any "
		      "network: use another type of pairs, such as MPI_2INT, or run with --mpi mpich\n");
	(void)REAL(Win_call_errhandler, handle, int)(window, ERR_TYPE);
	return ERR_TYPE;
}

/* Replaces several elements of a type that Open MPI would move wrongly by one element of a derived type. */
static int wrap(int *count, handle *type)
{
	struct run *run = NULL;
	int status = SUCCESS;

	if (*count < 2 || !has_gap_behind(*type))
		return SUCCESS;
	(void)pthread_mutex_lock(&runs_lock);
	for (run = runs; run != NULL; run = run->next)
		if (run->element == *type && run->count == *count)
			break;
	if (run == NULL && (run = calloc(1, sizeof(*run))) != NULL) {
		run->element = *type;
		run->count = *count;
		status = REAL(Type_contiguous, int, handle, handle *)(*count, *type, &run->type);
		if (status == SUCCESS)
			status = REAL(Type_commit, handle *)(&run->type);
		run->next = runs;
		if (status == SUCCESS)
			runs = run;
		else
			free(run);
	}
	(void)pthread_mutex_unlock(&runs_lock);
	if (run == NULL)
		return ERR_NO_MEM;
	if (status == SUCCESS) {
		*count = 1;
		*type = run->type;
	}
	return status;
}

/* Checks and wraps the types of an operation. The target's type tells of what all its types consist. */
#define PREPARE(window) \
	do { \
		int prepared = SUCCESS; \
		if (__builtin_expect(target_type == type && is_plain(type), 1)) \
			break; \
		(void)pthread_once(&look_up_once, look_up); \
		if (contains_gap(target_type)) \
			return refuse(window); \
		if ((prepared = wrap(&target_count, &target_type)) != SUCCESS || \
		    (prepared = wrap(&count, &type)) != SUCCESS) \
			return prepared; \
	} while (0)

#define ACCUMULATE_PARAMETERS \
	const void *from, int count, handle type, int target, ptrdiff_t displacement, int target_count, \
		handle target_type, handle operation, handle window

static int accumulate(ACCUMULATE_PARAMETERS)
{
	PREPARE(window);
	return REAL(Accumulate, ACCUMULATE_PARAMETERS)(from, count, type, target, displacement, target_count,
						       target_type, operation, window);
}

static int raccumulate(ACCUMULATE_PARAMETERS, handle *request)
{
	PREPARE(window);
	return REAL(Raccumulate, ACCUMULATE_PARAMETERS, handle *)(from, count, type, target, displacement,
								  target_count, target_type, operation,
								  window, request);
}

#define GET_PARAMETERS \
	const void *from, int count, handle type, void *result, int result_count, handle result_type, \
		int target, ptrdiff_t displacement, int target_count, handle target_type, handle operation, \
		handle window

static int get_accumulate(GET_PARAMETERS)
{
	PREPARE(window);
	int status = wrap(&result_count, &result_type);
	return status != SUCCESS
		       ? status
		       : REAL(Get_accumulate, GET_PARAMETERS)(from, count, type, result, result_count,
							      result_type, target, displacement, target_count,
							      target_type, operation, window);
}

static int rget_accumulate(GET_PARAMETERS, handle *request)
{
	PREPARE(window);
	int status = wrap(&result_count, &result_type);
	return status != SUCCESS
		       ? status
		       : REAL(Rget_accumulate, GET_PARAMETERS,
			      handle *)(from, count, type, result, result_count, result_type, target,
					displacement, target_count, target_type, operation, window, request);
}

#define FETCH_PARAMETERS \
	const void *from, void *result, handle type, int target, ptrdiff_t displacement, handle operation, \
		handle window

static int fetch_and_op(FETCH_PARAMETERS)
{
	if (!is_plain(type)) {
		(void)pthread_once(&look_up_once, look_up);
		if (contains_gap(type))
			return refuse(window);
	}
	return REAL(Fetch_and_op, FETCH_PARAMETERS)(from, result, type, target, displacement, operation,
						    window);
}

#define BOTH_NAMES(name, function, ...) \
	VISIBLE int MPI_##name(__VA_ARGS__) __attribute__((alias(#function))); \
	VISIBLE int PMPI_##name(__VA_ARGS__) __attribute__((alias(#function)))

BOTH_NAMES(Accumulate, accumulate, ACCUMULATE_PARAMETERS);
BOTH_NAMES(Raccumulate, raccumulate, ACCUMULATE_PARAMETERS, handle *request);
BOTH_NAMES(Get_accumulate, get_accumulate, GET_PARAMETERS);
BOTH_NAMES(Rget_accumulate, rget_accumulate, GET_PARAMETERS, handle *request);
BOTH_NAMES(Fetch_and_op, fetch_and_op, FETCH_PARAMETERS);
