/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * record_remote.c - one-sided operations between pairs of ranks, by each method of synchronization.
 *
 * The MPI library allocates the memory of the window. A sample is everything that completes one
 * window of operations: the operations and one MPI_Win_flush within one passive epoch; or
 * MPI_Win_lock, the operations, MPI_Win_unlock; or an epoch of post, start, complete and wait, on
 * the origin's side; or the operations and the MPI_Win_fence of all ranks. A target that has
 * nothing to do is in MPI_Barrier meanwhile, where a library that needs its progress gets it.
 */
#include "record.h"

enum kind { PUT, GET, ACCUMULATE, PUT_BIDIRECTIONAL };

struct epoch {
	struct exchange exchange; /* first: the operations get a pointer to it */
	enum kind kind;
	enum synchronization synchronization;
	MPI_Win window;
	MPI_Group peer;
	char *memory; /* this rank's side of the window */
	size_t bytes; /* of the memory, and of the buffer: one message for each operation in flight */
};

static const struct epoch *epoch_of(const struct exchange *exchange)
{
	return (const struct epoch *)(const void *)exchange;
}

static bool is_origin(const struct epoch *epoch)
{
	return epoch->kind == PUT_BIDIRECTIONAL || begins(&epoch->exchange);
}

static bool is_target(const struct epoch *epoch)
{
	return epoch->kind == PUT_BIDIRECTIONAL || !begins(&epoch->exchange);
}

/* Each operation of a window has a separate location at both ends. */
static void issue(const struct epoch *epoch)
{
	const struct exchange *exchange = &epoch->exchange;
	int size = exchange->size, peer = exchange->peer;
	int count = size / (int)sizeof(uint64_t);

	for (int message = 0; message < exchange->window; message++) {
		MPI_Aint at = (MPI_Aint)message * size;
		char *buffer = exchange->buffer + at;

		switch (epoch->kind) {
		case GET:
			MPI_Get(buffer, size, MPI_CHAR, peer, at, size, MPI_CHAR, epoch->window);
			break;
		case ACCUMULATE:
			MPI_Accumulate(buffer, count, MPI_UINT64_T, peer, at, count, MPI_UINT64_T, MPI_SUM,
				       epoch->window);
			break;
		default:
			MPI_Put(buffer, size, MPI_CHAR, peer, at, size, MPI_CHAR, epoch->window);
		}
	}
}

static void flushed(const struct exchange *exchange, long iterations)
{
	const struct epoch *epoch = epoch_of(exchange);

	for (long i = 0; i < iterations && is_origin(epoch); i++) {
		issue(epoch);
		MPI_Win_flush(exchange->peer, epoch->window);
	}
}

static void locked(const struct exchange *exchange, long iterations)
{
	const struct epoch *epoch = epoch_of(exchange);

	for (long i = 0; i < iterations && is_origin(epoch); i++) {
		MPI_Win_lock(MPI_LOCK_SHARED, exchange->peer, 0, epoch->window);
		issue(epoch);
		MPI_Win_unlock(exchange->peer, epoch->window);
	}
}

static void posted(const struct exchange *exchange, long iterations)
{
	const struct epoch *epoch = epoch_of(exchange);

	for (long i = 0; i < iterations; i++) {
		if (is_target(epoch))
			MPI_Win_post(epoch->peer, 0, epoch->window);
		if (is_origin(epoch)) {
			MPI_Win_start(epoch->peer, 0, epoch->window);
			issue(epoch);
			MPI_Win_complete(epoch->window);
		}
		if (is_target(epoch))
			MPI_Win_wait(epoch->window);
	}
}

static void fenced(const struct exchange *exchange, long iterations)
{
	const struct epoch *epoch = epoch_of(exchange);

	for (long i = 0; i < iterations; i++) {
		if (is_origin(epoch))
			issue(epoch);
		MPI_Win_fence(0, epoch->window);
	}
}

static exchange_function *const runs[] = {
	[FLUSH] = flushed, [LOCK] = locked, [PSCW] = posted, [FENCE] = fenced};

static char pattern(int rank, size_t i)
{
	return (char)(31 * rank + 7 * (int)(i % 4093) + 1);
}

static void fill(char *bytes, size_t count, int rank)
{
	for (size_t i = 0; i < count; i++)
		bytes[i] = pattern(rank, i);
}

static void check(const struct epoch *epoch, const char *bytes)
{
	static const char *const names[] = {"put", "get", "accumulate", "put both ways"};

	for (size_t i = 0; i < epoch->bytes; i++) {
		if (bytes[i] == pattern(epoch->exchange.peer, i))
			continue;
		fprintf(stderr, "error: %s of %d bytes is wrong at byte %zu: the figures would be invalid\n",
			names[epoch->kind], epoch->exchange.size, i);
		MPI_Abort(MPI_COMM_WORLD, 3);
	}
}

/* Each kind moves a pattern once: into the target's zeroes, or over the origin's. */
static void verify(const struct epoch *epoch)
{
	runs[epoch->synchronization](&epoch->exchange, 1);
	MPI_Barrier(MPI_COMM_WORLD);
	if (epoch->kind == GET) {
		if (is_origin(epoch))
			check(epoch, epoch->exchange.buffer);
	} else if (is_target(epoch)) {
		/* Read own memory as the method of synchronization requires. */
		if (epoch->synchronization == FLUSH)
			MPI_Win_sync(epoch->window);
		if (epoch->synchronization == LOCK)
			MPI_Win_lock(MPI_LOCK_SHARED, epoch->exchange.rank, 0, epoch->window);
		check(epoch, epoch->memory);
		if (epoch->synchronization == LOCK)
			MPI_Win_unlock(epoch->exchange.rank, epoch->window);
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

static void open_window(struct epoch *epoch)
{
	MPI_Group world;

	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_incl(world, 1, &epoch->exchange.peer, &epoch->peer);
	MPI_Group_free(&world);
	MPI_Win_allocate((MPI_Aint)epoch->bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &epoch->memory,
			 &epoch->window);
	/* The window's memory must not be written outside an epoch, either. */
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, epoch->exchange.rank, 0, epoch->window);
	if (epoch->kind == GET)
		fill(epoch->memory, epoch->bytes, epoch->exchange.rank);
	else
		memset(epoch->memory, 0, epoch->bytes);
	MPI_Win_unlock(epoch->exchange.rank, epoch->window);
	MPI_Barrier(MPI_COMM_WORLD);
	if (epoch->synchronization == FLUSH)
		MPI_Win_lock_all(0, epoch->window);
	if (epoch->synchronization == FENCE)
		MPI_Win_fence(0, epoch->window);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void open_remote(struct subject *subject, int kind, size_t size, int window,
			enum synchronization synchronization)
{
	struct epoch *epoch = measure_buffer(sizeof(*epoch));
	int rank, ranks;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	*epoch = (struct epoch){
		.exchange = {.rank = rank,
			     .peer = record_peer(rank, ranks),
			     .size = (int)size,
			     .window = window},
		.kind = (enum kind)kind,
		.synchronization = synchronization,
		.bytes = (size_t)window * size,
	};
	epoch->exchange.buffer = measure_buffer(epoch->bytes);
	if (kind == GET)
		memset(epoch->exchange.buffer, 0, epoch->bytes);
	else
		fill(epoch->exchange.buffer, epoch->bytes, rank);
	open_window(epoch);
	verify(epoch);
	*subject = (struct subject){
		.exchange = &epoch->exchange,
		.run = runs[synchronization],
		.messages = (long)window * (kind == PUT_BIDIRECTIONAL ? 2 : 1),
		.kept = begins(&epoch->exchange),
	};
}

static void close_remote(struct subject *subject)
{
	struct epoch *epoch = (struct epoch *)(void *)subject->exchange;

	if (epoch->synchronization == FLUSH)
		MPI_Win_unlock_all(epoch->window);
	if (epoch->synchronization == FENCE)
		MPI_Win_fence(MPI_MODE_NOSUCCEED, epoch->window);
	MPI_Win_free(&epoch->window);
	MPI_Group_free(&epoch->peer);
	free(epoch->exchange.buffer);
	free(epoch);
}

#define REMOTE(its_name, its_kind, its_multiple, its_sample) \
	{ \
		.name = (its_name), .kind = (its_kind), .window = 1, .sample = (its_sample), .sizes = true, \
		.pairs = true, .remote = true, .multiple = (its_multiple), .open = open_remote, \
		.close = close_remote \
	}

const struct operation remote_operations[] = {
	REMOTE("put", PUT, 1, "a window of puts, done at the target"),
	REMOTE("get", GET, 1, "a window of gets, done at the origin"),
	REMOTE("accumulate", ACCUMULATE, sizeof(uint64_t), "a window of accumulates, done at the target"),
	REMOTE("put-bidirectional", PUT_BIDIRECTIONAL, 1, "a window of puts each way, done at both ends"),
	{.name = NULL},
};
