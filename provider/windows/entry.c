/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * entry.c - MPI's functions of windows, in libvicinal-mpi.so, beside those of collectives/entry.c.
 *
 * With VICINAL_WINDOWS=off, all calls are passed on.
 */
#include <limits.h>
#include <string.h>

#include "collectives/communicator.h"
#include "collectives/data.h"
#include "windows/accumulate.h"
#include "windows/memory.h"
#include "windows/shared.h"
#include "windows/synchronize.h"

/* The window, if operations on it may be done here. */
static struct window *find(handle win)
{
	return windows_are_off() ? NULL : window_find(handle_of(win));
}

/* NOLINTBEGIN(bugprone-macro-parentheses): lists of arguments have parentheses already. */

/* ---- both names of a function ---- */

typedef int64_t large;

#define UNWRAP(...) __VA_ARGS__
#define VISIBLE __attribute__((visibility("default")))

/*
 * NAME_here() is what this library does. A profiling tool behind this library is called first. The first call
 * of all looks the MPI library's functions up.
 */
#define EXPORT(name, parameters, arguments) \
	VISIBLE int PMPI_##name(UNWRAP parameters); \
	int PMPI_##name(UNWRAP parameters) \
	{ \
		(void)windows_are_off(); \
		return name##_here arguments; \
	} \
	VISIBLE int MPI_##name(UNWRAP parameters); \
	int MPI_##name(UNWRAP parameters) \
	{ \
		(void)windows_are_off(); \
		if (__builtin_expect(mpi.tools[FUNCTION_##name] != NULL, 0)) \
			return ((int(*) parameters)mpi.tools[FUNCTION_##name])arguments; \
		return name##_here arguments; \
	}

/* ---- memory, and the lifetime of windows ---- */

static int Alloc_mem_here(intptr_t bytes, handle info, void *base)
{
	void *memory = windows_are_off() || bytes <= 0 ? NULL : memory_allocate((uint64_t)bytes);

	if (memory == NULL)
		return MPI_CALL(Alloc_mem, intptr_t, handle, void *)(bytes, info, base);
	memcpy(base, &memory, sizeof(memory));
	return MPI_OK;
}

static int Free_mem_here(void *base)
{
	return memory_release(base) ? MPI_OK : MPI_CALL(Free_mem, void *)(base);
}

EXPORT(Alloc_mem, (intptr_t bytes, handle info, void *base), (bytes, info, base))
EXPORT(Free_mem, (void *base), (base))

#define ALLOCATE_PARAMETERS(number) \
	(intptr_t bytes, number unit, handle info, handle comm, void *base, void *win)
#define CREATE_PARAMETERS(number) \
	(void *base, intptr_t bytes, number unit, handle info, handle comm, void *win)

static int Win_allocate_here(intptr_t bytes, int unit, handle info, handle comm, void *base, void *win)
{
	return window_allocate(bytes, unit, false, info, handle_of(comm), base, win);
}

static int Win_allocate_c_here(intptr_t bytes, intptr_t unit, handle info, handle comm, void *base, void *win)
{
	return window_allocate(bytes, unit, true, info, handle_of(comm), base, win);
}

static int Win_create_here(void *base, intptr_t bytes, int unit, handle info, handle comm, void *win)
{
	return window_create(base, bytes, unit, false, info, handle_of(comm), win);
}

static int Win_create_c_here(void *base, intptr_t bytes, intptr_t unit, handle info, handle comm, void *win)
{
	return window_create(base, bytes, unit, true, info, handle_of(comm), win);
}

static int Win_free_here(void *win)
{
	return window_free(win);
}

EXPORT(Win_allocate, ALLOCATE_PARAMETERS(int), (bytes, unit, info, comm, base, win))
EXPORT(Win_allocate_c, ALLOCATE_PARAMETERS(intptr_t), (bytes, unit, info, comm, base, win))
EXPORT(Win_create, CREATE_PARAMETERS(int), (base, bytes, unit, info, comm, win))
EXPORT(Win_create_c, CREATE_PARAMETERS(intptr_t), (base, bytes, unit, info, comm, win))
EXPORT(Win_free, (void *win), (win))

/* ---- shared windows ---- */

static int Comm_split_type_here(handle comm, int type, int key, handle info, void *made)
{
	return shared_split(handle_of(comm), type, key, handle_of(info), made);
}

static int Win_allocate_shared_here(intptr_t bytes, int unit, handle info, handle comm, void *base, void *win)
{
	return shared_allocate(bytes, unit, false, handle_of(info), handle_of(comm), base, win);
}

static int Win_allocate_shared_c_here(intptr_t bytes, intptr_t unit, handle info, handle comm, void *base,
				      void *win)
{
	return shared_allocate(bytes, unit, true, handle_of(info), handle_of(comm), base, win);
}

static int Win_shared_query_here(handle win, int rank, intptr_t *bytes, int *unit, void *base)
{
	return shared_query(handle_of(win), rank, bytes, unit, false, base);
}

static int Win_shared_query_c_here(handle win, int rank, intptr_t *bytes, intptr_t *unit, void *base)
{
	return shared_query(handle_of(win), rank, bytes, unit, true, base);
}

EXPORT(Comm_split_type, (handle comm, int type, int key, handle info, void *made),
       (comm, type, key, info, made))
EXPORT(Win_allocate_shared, ALLOCATE_PARAMETERS(int), (bytes, unit, info, comm, base, win))
EXPORT(Win_allocate_shared_c, ALLOCATE_PARAMETERS(intptr_t), (bytes, unit, info, comm, base, win))
EXPORT(Win_shared_query, (handle win, int rank, intptr_t *bytes, int *unit, void *base),
       (win, rank, bytes, unit, base))
EXPORT(Win_shared_query_c, (handle win, int rank, intptr_t *bytes, intptr_t *unit, void *base),
       (win, rank, bytes, unit, base))

/* ---- attributes ---- */

/* The values are facts of the interfaces' headers. */
static const struct attributes {
	int flavor_key;
	int flavors[3]; /* by enum window_flavor */
	int model_key;
	int unified;
} attributes[] = {
	[ABI_UNKNOWN] = {10, {1, 2, 4}, 11, 0},
	[ABI_OPEN_MPI] = {10, {1, 2, 4}, 11, 0},
	[ABI_MPICH] = {0x66000007, {1, 2, 4}, 0x66000009, 2},
	[ABI_STANDARD] = {604, {311, 312, 314}, 605, 321},
};

/*
 * The MPI library made the window over memory that it did not allocate, so it has another flavor for it. Each
 * rank's loads and stores are to the one memory there is: that is the unified model.
 */
static int Win_get_attr_here(handle win, int key, void *value, int *flag)
{
	const struct attributes *known = &attributes[mpi.abi];
	int status = MPI_CALL(Win_get_attr, handle, int, void *, int *)(win, key, value, flag);
	const struct window *window =
		(key == known->flavor_key || key == known->model_key) && status == MPI_OK && *flag != 0
			? find(win)
			: NULL;
	const int *answer = key == known->model_key ? &known->unified
			    : window != NULL        ? &known->flavors[window->flavor]
						    : NULL;

	if (window != NULL)
		memcpy(value, &answer, sizeof(answer));
	return status;
}

EXPORT(Win_get_attr, (handle win, int key, void *value, int *flag), (win, key, value, flag))

/* ---- operations ---- */

/*
 * The MPI library's function. An older library has no forms with large counts. Then the plain form serves,
 * because small counts are passed alike.
 */
static mpi_function behind(int index, int plain, int64_t most)
{
	if (mpi.functions[index] != NULL || most > INT_MAX)
		return mpi.functions[index];
	/* libvicinal-pairs.so has no forms with large counts, and must see accumulates. */
	return mpi_first(plain);
}

/* The number is the same in all three interfaces. */
enum { ERROR_COUNT = 2 };

static int refuse_count(handle win)
{
	(void)MPI_CALL(Win_call_errhandler, handle, int)(win, ERROR_COUNT);
	return ERROR_COUNT;
}

static void count_operation(const struct target *target)
{
	int64_t bytes = data_bytes(target->count, target->type);

	count_more(COUNTED_ONE_SIDED, 1);
	count_more(COUNTED_ONE_SIDED_BYTES, bytes > 0 ? (uint64_t)bytes : 0);
}

/*
 * An operation that is done here, or else passed on. `w` is the window, and `t` the target, in `does`.
 * The request of an operation that was done here is the one of an operation without data.
 */
#define OPERATION(name, plain, parameters, arguments, does, finished) \
	static int name##_here(UNWRAP parameters) \
	{ \
		struct window *w = find(win); \
		if (w != NULL && \
		    __builtin_expect(atomic_load_explicit(&w->broken, memory_order_relaxed), 0)) \
			return window_fail(w); \
		if (w != NULL) { \
			const struct target t = {rank, disp, count, handle_of(type)}; \
			enum outcome outcome = (does); \
			if (__builtin_expect(outcome == OUTCOME_DONE, 1)) { \
				count_operation(&t); \
				window_progress(w); \
				return finished; \
			} \
			if (outcome == OUTCOME_FAILED) \
				return window_fail(w); \
		} \
		mpi_function real = behind(FUNCTION_##name, FUNCTION_##plain, count); \
		if (real == NULL) \
			return refuse_count(win); \
		int status = ((int(*) parameters)real)arguments; \
		if (w != NULL) \
			window_was_passed(w, rank); \
		return status; \
	} \
	EXPORT(name, parameters, arguments)

static int request_nothing(int rank, handle win, void *request)
{
	char nothing = 0;

	return MPI_CALL(Rput, const void *, int, handle, int, intptr_t, int, handle, handle,
			void *)(&nothing, 0, mpi.byte, rank, 0, 0, mpi.byte, win, request);
}

/* The four forms of an operation: without and with a request, with counts of type int and of type MPI_Count.
 */
#define FORMS(name, request_name, parameters_of, arguments, does) \
	OPERATION(name, name, (parameters_of(int)), (UNWRAP arguments), does, MPI_OK) \
	OPERATION(name##_c, name, (parameters_of(large)), (UNWRAP arguments), does, MPI_OK) \
	OPERATION(request_name, request_name, (parameters_of(int), void *request), \
		  (UNWRAP arguments, request), does, request_nothing(rank, win, request)) \
	OPERATION(request_name##_c, request_name, (parameters_of(large), void *request), \
		  (UNWRAP arguments, request), does, request_nothing(rank, win, request))

#define PUT_PARAMETERS(number) \
	const void *origin, number origin_count, handle origin_type, int rank, intptr_t disp, number count, \
		handle type, handle win
#define GET_PARAMETERS(number) \
	void *origin, number origin_count, handle origin_type, int rank, intptr_t disp, number count, \
		handle type, handle win
#define ACCUMULATE_PARAMETERS(number) \
	const void *origin, number origin_count, handle origin_type, int rank, intptr_t disp, number count, \
		handle type, handle op, handle win
#define GET_ACCUMULATE_PARAMETERS(number) \
	const void *origin, number origin_count, handle origin_type, void *result, number result_count, \
		handle result_type, int rank, intptr_t disp, number count, handle type, handle op, \
		handle win

static struct buffer buffer_of(const void *address, int64_t count, handle type)
{
	/* The buffer of data to send is only read. */
	return (struct buffer){(void *)(uintptr_t)address, count, handle_of(type)};
}

FORMS(Put, Rput, PUT_PARAMETERS, (origin, origin_count, origin_type, rank, disp, count, type, win),
      access_put(w, origin, origin_count, handle_of(origin_type), &t))
FORMS(Get, Rget, GET_PARAMETERS, (origin, origin_count, origin_type, rank, disp, count, type, win),
      access_get(w, origin, origin_count, handle_of(origin_type), &t))

static enum outcome do_accumulate(const struct window *window, struct buffer origin,
				  const struct target *target, handle op)
{
	return accumulate(window, &origin, NULL, target, handle_of(op));
}

static enum outcome do_get_accumulate(const struct window *window, struct buffer origin, struct buffer result,
				      const struct target *target, handle op)
{
	return accumulate(window, &origin, &result, target, handle_of(op));
}

FORMS(Accumulate, Raccumulate, ACCUMULATE_PARAMETERS,
      (origin, origin_count, origin_type, rank, disp, count, type, op, win),
      do_accumulate(w, buffer_of(origin, origin_count, origin_type), &t, op))
FORMS(Get_accumulate, Rget_accumulate, GET_ACCUMULATE_PARAMETERS,
      (origin, origin_count, origin_type, result, result_count, result_type, rank, disp, count, type, op,
       win),
      do_get_accumulate(w, buffer_of(origin, origin_count, origin_type),
			buffer_of(result, result_count, result_type), &t, op))

enum { count = 1 };

OPERATION(Fetch_and_op, Fetch_and_op,
	  (const void *origin, void *result, handle type, int rank, intptr_t disp, handle op, handle win),
	  (origin, result, type, rank, disp, op, win),
	  do_get_accumulate(w, buffer_of(origin, 1, type), buffer_of(result, 1, type), &t, op), MPI_OK)
OPERATION(Compare_and_swap, Compare_and_swap,
	  (const void *origin, const void *compare, void *result, handle type, int rank, intptr_t disp,
	   handle win),
	  (origin, compare, result, type, rank, disp, win), compare_and_swap(w, origin, compare, result, &t),
	  MPI_OK)

/* ---- synchronization ---- */

static int Win_fence_here(int assertion, handle win)
{
	struct window *window = find(win);

	return window != NULL ? synchronize_fence(window, assertion)
			      : MPI_CALL(Win_fence, int, handle)(assertion, win);
}
EXPORT(Win_fence, (int assertion, handle win), (assertion, win))

#define FLUSH(name, parameters, arguments, rank, local) \
	static int name##_here(UNWRAP parameters) \
	{ \
		struct window *window = find(win); \
		return window != NULL ? synchronize_flush(window, rank, local) \
				      : MPI_CALL(name, UNWRAP parameters) arguments; \
	} \
	EXPORT(name, parameters, arguments)

FLUSH(Win_flush, (int rank, handle win), (rank, win), rank, false)
FLUSH(Win_flush_local, (int rank, handle win), (rank, win), rank, true)
FLUSH(Win_flush_all, (handle win), (win), ALL_RANKS, false)
FLUSH(Win_flush_local_all, (handle win), (win), ALL_RANKS, true)

/*
 * Calls that the MPI library does. The fence keeps this member's stores before those of the next holder of a
 * lock. `after` follows if the call succeeds.
 */
#define PASSED(name, parameters, arguments, after) \
	static int name##_here(UNWRAP parameters) \
	{ \
		struct window *window = find(win); \
		if (window != NULL) \
			atomic_thread_fence(memory_order_seq_cst); \
		int status = MPI_CALL(name, UNWRAP parameters) arguments; \
		if (window != NULL && status == MPI_OK) \
			after; \
		return status; \
	} \
	EXPORT(name, parameters, arguments)

PASSED(Win_lock, (int kind, int rank, int assertion, handle win), (kind, rank, assertion, win),
       synchronize_begun(window))
PASSED(Win_unlock, (int rank, handle win), (rank, win), synchronize_ended(window, rank))
PASSED(Win_lock_all, (int assertion, handle win), (assertion, win), synchronize_begun(window))
PASSED(Win_unlock_all, (handle win), (win), synchronize_ended(window, ALL_RANKS))
PASSED(Win_start, (handle group, int assertion, handle win), (group, assertion, win),
       synchronize_begun(window))
PASSED(Win_complete, (handle win), (win), synchronize_ended(window, ALL_RANKS))
PASSED(Win_post, (handle group, int assertion, handle win), (group, assertion, win),
       synchronize_exposed(window))
PASSED(Win_wait, (handle win), (win), synchronize_exposed(window))

/*
 * A program may know by other means that all origins have completed their epochs, for example by a barrier
 * through the region. Then a single test must show it, so the MPI library reads its messages first.
 */
#define TESTS 4

static int Win_test_here(handle win, int *flag)
{
	struct window *window = find(win);
	int status = MPI_CALL(Win_test, handle, int *)(win, flag);

	for (int i = 1; i < TESTS && window != NULL && status == MPI_OK && *flag == 0; i++) {
		progress();
		status = MPI_CALL(Win_test, handle, int *)(win, flag);
	}
	if (window != NULL && status == MPI_OK)
		synchronize_exposed(window);
	return status;
}
EXPORT(Win_test, (handle win, int *flag), (win, flag))

PASSED(Win_sync, (handle win), (win), synchronize_order(window))

/* NOLINTEND(bugprone-macro-parentheses) */
