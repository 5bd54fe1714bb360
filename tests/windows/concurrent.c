/* SPDX-License-Identifier: BSD-3-Clause */
/* concurrent.c - see concurrent.h */
#include "concurrent.h"

#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "steps.h"

static int me;
static int size;

static void *make_window(size_t bytes, int unit, MPI_Win *window)
{
	void *own;

	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Win_allocate((MPI_Aint)bytes, unit, MPI_INFO_NULL, MPI_COMM_WORLD, &own, window);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, me, 0, *window);
	memset(own, 0, bytes);
	MPI_Win_unlock(me, *window);
	MPI_Barrier(MPI_COMM_WORLD);
	return own;
}

/* --- sums ----------------------------------------------------------------------------------------- */

enum { ELEMENTS = 12 };

struct adder {
	pthread_t thread;
	MPI_Datatype type;
	MPI_Datatype every_second;
	MPI_Win window;
	const void *ones;
	int count;
	int first;
};

/* Adds 1 to each element, by one of four ways in turn. */
static void add_once(const struct adder *adder, int way)
{
	_Alignas(16) char before[ELEMENTS * 8];

	switch (way % 4) {
	case 0:
		MPI_Accumulate(adder->ones, ELEMENTS, adder->type, 0, adder->first, ELEMENTS, adder->type,
			       MPI_SUM, adder->window);
		break;
	case 1:
		MPI_Get_accumulate(adder->ones, ELEMENTS, adder->type, before, ELEMENTS, adder->type, 0,
				   adder->first, ELEMENTS, adder->type, MPI_SUM, adder->window);
		break;
	case 2:
		for (int i = 0; i < ELEMENTS; i++)
			MPI_Fetch_and_op(adder->ones, before, adder->type, 0, adder->first + i, MPI_SUM,
					 adder->window);
		break;
	default:
		for (int i = 0; i < 2; i++)
			MPI_Accumulate(adder->ones, ELEMENTS / 2, adder->type, 0, adder->first + i, 1,
				       adder->every_second, MPI_SUM, adder->window);
		break;
	}
	MPI_Win_flush(0, adder->window);
}

static void *add(void *argument)
{
	const struct adder *adder = argument;

	for (int i = 0; i < adder->count; i++)
		add_once(adder, i + me);
	return NULL;
}

static double value_of(const void *bytes, MPI_Datatype type, int i)
{
	return type == MPI_INT8_T     ? ((const int8_t *)bytes)[i]
	       : type == MPI_UINT16_T ? ((const uint16_t *)bytes)[i]
	       : type == MPI_INT32_T  ? ((const int32_t *)bytes)[i]
	       : type == MPI_INT64_T  ? (double)((const int64_t *)bytes)[i]
	       : type == MPI_FLOAT    ? (double)((const float *)bytes)[i]
				      : ((const double *)bytes)[i];
}

static double wrapped(double sum, MPI_Datatype type)
{
	return type == MPI_INT8_T     ? (int8_t)(int64_t)sum
	       : type == MPI_UINT16_T ? (uint16_t)(int64_t)sum
				      : sum;
}

static void sums_of(MPI_Datatype type, const char *name, const void *ones, int bytes, int count, int threads)
{
	struct adder adders[16];
	MPI_Win window;
	MPI_Datatype every_second;
	/* The first element lies at no multiple of 8 bytes. */
	int first = 1;
	char *own = make_window((size_t)bytes * 64, bytes, &window);

	describe("sums of %s", name);
	MPI_Type_vector(ELEMENTS / 2, 1, 2, type, &every_second);
	MPI_Type_commit(&every_second);
	MPI_Win_lock_all(0, window);
	for (int i = 0; i < threads; i++) {
		adders[i] = (struct adder){.type = type,
					   .every_second = every_second,
					   .window = window,
					   .ones = ones,
					   .count = count,
					   .first = first};
		if (threads > 1)
			pthread_create(&adders[i].thread, NULL, add, &adders[i]);
		else
			add(&adders[i]);
	}
	for (int i = 0; i < threads && threads > 1; i++)
		pthread_join(adders[i].thread, NULL);
	MPI_Win_unlock_all(window);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, me, 0, window);
	double expected = wrapped((double)count * size * threads, type);
	for (int i = 0; i < 64 && me == 0; i++) {
		double got = value_of(own, type, i);
		if (got != (i >= first && i < first + ELEMENTS ? expected : 0))
			wrong("element %d is %g, not %g", i, got, expected);
	}
	MPI_Win_unlock(me, window);
	MPI_Type_free(&every_second);
	MPI_Win_free(&window);
}

void concurrent_sums(int count, int threads)
{
	int8_t ones8[ELEMENTS];
	uint16_t ones16[ELEMENTS];
	int32_t ones32[ELEMENTS];
	int64_t ones64[ELEMENTS];
	float floats[ELEMENTS];
	double doubles[ELEMENTS];

	for (int i = 0; i < ELEMENTS; i++) {
		ones8[i] = 1;
		ones16[i] = 1;
		ones32[i] = 1;
		ones64[i] = 1;
		floats[i] = 1;
		doubles[i] = 1;
	}
	sums_of(MPI_INT8_T, "MPI_INT8_T", ones8, 1, count, threads);
	sums_of(MPI_UINT16_T, "MPI_UINT16_T", ones16, 2, count, threads);
	sums_of(MPI_INT32_T, "MPI_INT32_T", ones32, 4, count, threads);
	sums_of(MPI_INT64_T, "MPI_INT64_T", ones64, 8, count, threads);
	sums_of(MPI_FLOAT, "MPI_FLOAT", floats, 4, count, threads);
	sums_of(MPI_DOUBLE, "MPI_DOUBLE", doubles, 8, count, threads);
}

/* --- locks ---------------------------------------------------------------------------------------- */

static void increment(MPI_Win window, int target)
{
	int64_t value;

	MPI_Get(&value, 1, MPI_INT64_T, target, 2, 1, MPI_INT64_T, window);
	MPI_Win_flush(target, window);
	value++;
	MPI_Put(&value, 1, MPI_INT64_T, target, 2, 1, MPI_INT64_T, window);
	MPI_Win_flush(target, window);
}

static void by_compare_and_swap(MPI_Win window, int target)
{
	int64_t mine = me + 1;
	int64_t nobody = 0;
	int64_t before = 1;

	while (before != 0) {
		MPI_Compare_and_swap(&mine, &nobody, &before, MPI_INT64_T, target, 0, window);
		MPI_Win_flush(target, window);
	}
	increment(window, target);
	MPI_Accumulate(&nobody, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, MPI_REPLACE, window);
	MPI_Win_flush(target, window);
}

/* A lock with tickets: the next ticket at 0, the ticket that is served at 1. */
static void by_tickets(MPI_Win window, int target)
{
	int64_t one = 1;
	int64_t ticket;
	int64_t served;

	MPI_Fetch_and_op(&one, &ticket, MPI_INT64_T, target, 0, MPI_SUM, window);
	do {
		MPI_Fetch_and_op(NULL, &served, MPI_INT64_T, target, 1, MPI_NO_OP, window);
		MPI_Win_flush(target, window);
	} while (served != ticket);
	increment(window, target);
	MPI_Fetch_and_op(&one, &served, MPI_INT64_T, target, 1, MPI_SUM, window);
	MPI_Win_flush(target, window);
}

static void by_mpi(MPI_Win window, int target)
{
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window);
	increment(window, target);
	MPI_Win_unlock(target, window);
}

static void check_locks(void (*critical)(MPI_Win, int), bool lock_all, int count, const char *name)
{
	MPI_Win window;
	const int64_t *own = make_window(64, 8, &window);

	describe("locks: %s", name);
	if (lock_all)
		MPI_Win_lock_all(0, window);
	for (int i = 0; i < count; i++)
		critical(window, i % size);
	if (lock_all)
		MPI_Win_unlock_all(window);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, me, 0, window);
	int64_t expected = (int64_t)size * ((count - me + size - 1) / size);
	if (own[2] != expected)
		wrong("%lld increments, not %lld", (long long)own[2], (long long)expected);
	MPI_Win_unlock(me, window);
	MPI_Win_free(&window);
}

void concurrent_locks(int count)
{
	check_locks(by_compare_and_swap, true, count, "compare-and-swap");
	check_locks(by_tickets, true, count, "tickets");
	check_locks(by_mpi, false, count, "MPI_Win_lock");
}

/* --- order ---------------------------------------------------------------------------------------- */

static void pause_for(long microseconds)
{
	struct timespec time = {.tv_sec = 0, .tv_nsec = microseconds * 1000};

	nanosleep(&time, NULL);
}

/* A rank puts data, and then a flag. Its neighbor polls the flag in its own memory. */
static void order_of_flags(int count)
{
	enum { WORDS = 200 };
	MPI_Win window;
	int64_t data[WORDS];
	volatile int64_t *own = make_window(sizeof(data) + 64, 8, &window);
	int next = (me + 1) % size;

	describe("a flag after data");
	MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
	for (int64_t i = 1; i <= count; i++) {
		if (me != 0 || i > 1) {
			/* Rank 0 begins; the others wait for their neighbor. */
			int64_t awaited = me == 0 ? i - 1 : i;
			while (own[WORDS] != awaited)
				MPI_Win_sync(window);
			MPI_Win_sync(window);
			for (int word = 0; word < WORDS; word++)
				if (own[word] != awaited * 1000 + word)
					wrong("word %d of round %lld is %lld", word, (long long)awaited,
					      (long long)own[word]);
		}
		for (int word = 0; word < WORDS; word++)
			data[word] = i * 1000 + word;
		MPI_Put(data, WORDS, MPI_INT64_T, next, 0, WORDS, MPI_INT64_T, window);
		MPI_Win_flush(next, window);
		MPI_Accumulate(&i, 1, MPI_INT64_T, next, WORDS, 1, MPI_INT64_T, MPI_REPLACE, window);
		MPI_Win_flush(next, window);
	}
	MPI_Win_unlock_all(window);
	MPI_Win_free(&window);
}

/* A target stores into its window before it exposes it, late. An origin's put must come after that. */
static void order_of_epochs(int count, bool fences)
{
	MPI_Win window;
	volatile int64_t *own = make_window(64, 8, &window);
	MPI_Group all;
	MPI_Group next_group;
	MPI_Group previous_group;
	int next = (me + 1) % size;
	int previous = (me + size - 1) % size;

	describe("epochs by %s", fences ? "fences" : "posts");
	MPI_Win_get_group(window, &all);
	MPI_Group_incl(all, 1, &next, &next_group);
	MPI_Group_incl(all, 1, &previous, &previous_group);
	for (int64_t i = 1; i <= count; i++) {
		int64_t value = i * 10 + me;
		int64_t got = -1;
		if (i % size == me)
			pause_for(300);
		own[0] = -i;
		own[1] = i * 1000 + me;
		if (fences) {
			MPI_Win_fence(i % 2 == 0 ? MPI_MODE_NOPRECEDE : 0, window);
		} else {
			MPI_Win_post(previous_group, 0, window);
			MPI_Win_start(next_group, 0, window);
		}
		MPI_Put(&value, 1, MPI_INT64_T, next, 0, 1, MPI_INT64_T, window);
		MPI_Get(&got, 1, MPI_INT64_T, next, 1, 1, MPI_INT64_T, window);
		if (fences) {
			MPI_Win_fence(i % 2 == 1 ? MPI_MODE_NOSUCCEED : 0, window);
		} else {
			MPI_Win_complete(window);
			MPI_Win_wait(window);
		}
		if (own[0] != i * 10 + previous)
			wrong("round %lld put %lld", (long long)i, (long long)own[0]);
		if (got != i * 1000 + next)
			wrong("round %lld got %lld", (long long)i, (long long)got);
	}
	if (fences)
		MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
	MPI_Group_free(&all);
	MPI_Group_free(&next_group);
	MPI_Group_free(&previous_group);
	MPI_Win_free(&window);
}

void concurrent_order(int count)
{
	order_of_flags(count);
	order_of_epochs(count, true);
	order_of_epochs(count, false);
}

/* --- long moves, many windows --------------------------------------------------------------------- */

void large_moves(int count)
{
	const size_t words = (size_t)3 << 17; /* 3 MiB */
	MPI_Win window;
	int64_t *own = make_window(words * 2 * sizeof(int64_t), 8, &window);
	int64_t *data = malloc(words * sizeof(int64_t));
	int next = (me + 1) % size;
	int previous = (me + size - 1) % size;

	describe("long moves");
	for (int round = 0; round < count; round++) {
		for (size_t i = 0; i < words; i++)
			data[i] = (int64_t)i * (round + 1) + me;
		MPI_Win_fence(0, window);
		MPI_Put(data, (int)words, MPI_INT64_T, next, round % 2, (int)words, MPI_INT64_T, window);
		MPI_Win_fence(0, window);
		for (size_t i = 0; i < words; i++)
			if (own[i + (size_t)round % 2] != (int64_t)i * (round + 1) + previous)
				wrong("put: word %zu of round %d", i, round);
		memset(data, 0, words * sizeof(int64_t));
		MPI_Get(data, (int)words, MPI_INT64_T, next, round % 2, (int)words, MPI_INT64_T, window);
		MPI_Win_fence(0, window);
		for (size_t i = 0; i < words; i++)
			if (data[i] != (int64_t)i * (round + 1) + me)
				wrong("get: word %zu of round %d", i, round);
	}
	MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
	free(data);
	MPI_Win_free(&window);
}

void windows_churn(int count)
{
	enum { LIVE = 5 };
	MPI_Win live[LIVE];
	int64_t *memory[LIVE];

	for (int i = 0; i < count + LIVE; i++) {
		int64_t value = i + 1;
		int64_t before = -1;
		describe("window %d of many", i);
		if (i >= LIVE)
			MPI_Win_free(&live[i % LIVE]);
		if (i >= count)
			continue;
		/* Some windows are longer than the heap, and some have no bytes on odd ranks. */
		size_t words = i % 50 == 49 ? (size_t)1 << 24 : 2 + (size_t)(i * 7919 % 100000);
		memory[i % LIVE] = make_window(words * sizeof(int64_t), 8, &live[i % LIVE]);
		MPI_Win_lock_all(0, live[i % LIVE]);
		MPI_Fetch_and_op(&value, &before, MPI_INT64_T, (me + 1) % size, (MPI_Aint)words - 1, MPI_SUM,
				 live[i % LIVE]);
		MPI_Win_unlock_all(live[i % LIVE]);
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Win_lock(MPI_LOCK_SHARED, me, 0, live[i % LIVE]);
		if (before != 0 || memory[i % LIVE][words - 1] != value)
			wrong("%lld, then %lld", (long long)before, (long long)memory[i % LIVE][words - 1]);
		MPI_Win_unlock(me, live[i % LIVE]);
	}
}

/* --- a rank without calls ------------------------------------------------------------------------- */

void say_direct(void)
{
	MPI_Win window;
	volatile int64_t *own = make_window(64, 8, &window);
	int64_t value = 7;
	const int *flavor = NULL;
	int found = 0;
	bool seen = false;

	describe("a rank without calls");
	MPI_Win_get_attr(window, MPI_WIN_CREATE_FLAVOR, &flavor, &found);
	if (!found || *flavor != MPI_WIN_FLAVOR_ALLOCATE)
		wrong("the flavor is %d", found ? *flavor : -1);
	MPI_Win_lock_all(0, window);
	MPI_Barrier(MPI_COMM_WORLD);
	if (me == 1) {
		pause_for(50000); /* until rank 0 has left the barrier, which may poll once more */
		MPI_Put(&value, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, window);
		MPI_Win_flush(0, window);
	}
	for (int i = 0; i < 300 && me == 0 && !seen; i++) {
		pause_for(1000);
		seen = own[0] == value;
	}
	MPI_Win_unlock_all(window);
	if (me == 0)
		printf("%s\n", seen ? "direct" : "by messages");
	MPI_Win_free(&window);
}

/* --- windows that keep a rank in the region -------------------------------------------------------- */

/* Lets the MPI library work until all ranks see the file. */
static void wait_for_file(const char *name)
{
	int here = 0;
	int everywhere = 0;

	while (!everywhere) {
		here = access(name, F_OK) == 0;
		MPI_Allreduce(&here, &everywhere, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
		pause_for(500);
	}
}

void windows_hold(const char *release, const char *end)
{
	MPI_Win windows[2];
	int64_t *own[2];
	void *memory;

	describe("held windows");
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Alloc_mem(100, MPI_INFO_NULL, &memory);
	/* The window of rank 1 has no bytes, but its rank needs the region too. */
	for (int i = 0; i < 2; i++)
		MPI_Win_allocate(me == 1 ? 0 : 64, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &own[i], &windows[i]);
	if (me == 0)
		printf("holding\n");
	fflush(stdout);
	wait_for_file(release);
	for (int i = 0; i < 2; i++) {
		int64_t value = 10 + i;
		MPI_Win_fence(0, windows[i]);
		if (me == 1)
			MPI_Put(&value, 1, MPI_INT64_T, 0, 3, 1, MPI_INT64_T, windows[i]);
		MPI_Win_fence(0, windows[i]);
		if (me == 0 && own[i][3] != value)
			wrong("window %d has %lld", i, (long long)own[i][3]);
		MPI_Win_free(&windows[i]);
	}
	MPI_Free_mem(memory);
	wait_for_file(end);
	/* Some ranks may be in the region, and others not. */
	concurrent_sums(20, 1);
}
