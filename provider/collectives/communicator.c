/* SPDX-License-Identifier: BSD-3-Clause */
/* communicator.c - which communicators use the region, and the lifetime of their blocks. */
#include "collectives/communicator.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "collectives/setup.h"
#include "collectives/source.h"
#include "collectives/wait.h"

/*
 * The collective in which a communicator gets a block, counted from 1. The first one is the MPI library's,
 * because many communicators are used once. A reduction is never: the same sum must have the same result each
 * time, and the MPI library may add in another order.
 */
#define SETUP_AT 2

/* Collectives until the next attempt after a member had to leave. Doubled at each attempt that fails. */
#define RETRY_INTERVAL 1024U
#define RETRY_INTERVAL_MAX (1U << 20)

#define TABLE_SIZE 256U

/* Never held while an MPI function is called. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* Under the mutex. */
static struct communicator *table[TABLE_SIZE];
static struct communicator *retired;
static int keyval;
static atomic_bool has_keyval;
/* Incremented when a communicator is removed from the table: all threads look up again. */
static atomic_uint removals;
static atomic_bool finished;

/* ---- the region ---- */

bool communicator_peer_is_gone(struct communicator *communicator, int rank)
{
	struct communicator_peer *peer = &communicator->peers[rank];

	return source_region()->is_gone(source_region()->member, peer->slot, peer->epoch, peer->heartbeat);
}

void communicator_wait_elsewhere(bool waits)
{
	source_region()->wait_elsewhere(waits);
}

/* Has every member completed all steps? Its block may belong to another communicator by now. */
static bool is_complete(const struct communicator *communicator, int rank, uint64_t step)
{
	const struct block *block = communicator->peers[rank].block;

	return rank == communicator->rank || shared_acquire_u64(&block->done) >= step ||
	       shared_acquire_u64(&block->number) != communicator->number;
}

/* Has every member found out which collective is the last one? */
static bool all_agreed(const struct communicator *communicator)
{
	for (int rank = 0; rank < communicator->size; rank++) {
		const struct block *block = communicator->peers[rank].block;
		if (shared_acquire_u64(&block->agreed) == 0 &&
		    shared_acquire_u64(&block->number) == communicator->number)
			return false;
	}
	return true;
}

static bool all_complete(const struct communicator *communicator)
{
	for (int rank = 0; rank < communicator->size; rank++)
		if (!is_complete(communicator, rank, communicator->step))
			return false;
	return true;
}

/* Under the mutex: releases the freed communicators whose blocks no member reads any more. */
static void reap_retired(void)
{
	struct communicator **link = &retired;

	while (*link != NULL) {
		struct communicator *communicator = *link;
		if (communicator->settling || (communicator->block != NULL && !all_complete(communicator))) {
			link = &communicator->next;
			continue;
		}
		*link = communicator->next;
		setup_release(communicator);
		free(communicator);
	}
}

/*
 * Under the mutex: the same for the blocks of closed communicators. Each member must have found the last
 * collective by the others' words first.
 */
static void reap_closed(void)
{
	for (unsigned int i = 0; i < TABLE_SIZE; i++)
		for (struct communicator *communicator = table[i]; communicator != NULL;
		     communicator = communicator->next)
			if (communicator->state == COMMUNICATOR_CLOSED && communicator->block != NULL &&
			    all_complete(communicator) && all_agreed(communicator))
				setup_release(communicator);
}

/* Can this process execute a barrier in all its threads, as store_closed() must? Some sandboxes forbid it. */
static bool can_leave(void)
{
	static int can = -1; /* under the mutex */

	if (can < 0)
		can = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
	return can == 1;
}

/* Gives a communicator a block, if all members can have one: else its collectives are the MPI library's. */
static void set_up(struct communicator *communicator)
{
	struct block *block = NULL;

	(void)pthread_mutex_lock(&mutex);
	reap_retired();
	reap_closed();
	/* A closed communicator keeps its old block until no member reads it. */
	if (!source_is_leaving() && communicator->block == NULL && can_leave())
		block = source_allocate(BLOCK_BYTES);
	(void)pthread_mutex_unlock(&mutex);
	communicator->state = COMMUNICATOR_PASSED;
	bool valid = setup_exchange(communicator, block);
	(void)pthread_mutex_lock(&mutex);
	if (valid) {
		communicator->block = block;
		communicator->step = 0;
		communicator->complete = 0;
		communicator->no_staging = false;
		/* The collective that sets it up is the first one through the region. */
		atomic_store(&communicator->ended, atomic_load(&communicator->begun) - 1);
		atomic_store(&communicator->closing, false);
		communicator->last = 0;
		communicator->state = COMMUNICATOR_REGION;
	} else if (block != NULL) {
		(void)source_region()->release(block);
	}
	(void)pthread_mutex_unlock(&mutex);
}

/* ---- leaving ---- */

/* Under the mutex: stores how many collectives this member has begun, once. */
static void store_closed(struct communicator *communicator)
{
	if (atomic_load(&communicator->closing))
		return;
	atomic_store(&communicator->closing, true);
	/*
	 * Pairs with the barrier of the compiler in communicator_enter(): either that thread sees `closing`,
	 * or this one sees its collective.
	 */
	(void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
	/* More than 0, because 0 says nothing. */
	shared_release_u64(&communicator->block->closed, atomic_load(&communicator->begun) + 1);
}

/*
 * Finds the last collective through the region, once, and says so. Returns false while a member has not said
 * how many it has begun. A member that freed the communicator has released its block: it begins no more.
 */
static bool find_last(struct communicator *communicator)
{
	uint64_t last = 0;

	if (communicator->last != 0)
		return true;
	for (int rank = 0; rank < communicator->size; rank++) {
		const struct block *block = communicator->peers[rank].block;
		uint64_t closed = shared_acquire_u64(&block->closed);
		bool released = shared_acquire_u64(&block->number) != communicator->number;
		if (closed == 0 && !released)
			return false;
		if (!released && closed > last)
			last = closed;
	}
	communicator->last = last;
	shared_release_u64(&communicator->block->agreed, last);
	return true;
}

/* Under the mutex: closes the communicator if its last collective through the region has ended here. */
static void close_if_ended(struct communicator *communicator)
{
	if (communicator->state != COMMUNICATOR_REGION || !atomic_load(&communicator->closing) ||
	    !find_last(communicator) || atomic_load(&communicator->ended) + 1 < communicator->last)
		return;
	communicator->state = COMMUNICATOR_CLOSED;
	/* All members have the same numbers, so all try again in the same collective. */
	communicator->retry_interval = RETRY_INTERVAL;
	communicator->retry_at = communicator->last + RETRY_INTERVAL;
}

bool communicator_enter_closing(struct communicator *communicator)
{
	uint64_t this_one = atomic_load(&communicator->begun);
	struct wait wait = {.rounds = 0};
	bool found = false;

	for (int rank = 0; !found; rank = (rank + 1) % communicator->size) {
		(void)pthread_mutex_lock(&mutex);
		found = find_last(communicator);
		(void)pthread_mutex_unlock(&mutex);
		/* The provider's progress calls vicinal_region_attend() meanwhile. */
		if (!found && !wait_go_on(&wait, communicator, rank)) {
			communicator_break(communicator, rank, "ended, or left the region");
			return true;
		}
	}
	if (this_one < communicator->last)
		return true;
	(void)pthread_mutex_lock(&mutex);
	close_if_ended(communicator);
	(void)pthread_mutex_unlock(&mutex);
	return false;
}

#pragma GCC visibility push(default)
region_attend_function vicinal_region_attend;

uint32_t vicinal_region_attend(bool leave)
{
	(void)pthread_mutex_lock(&mutex);
	source_set_leaving(leave);
	for (unsigned int i = 0; i < TABLE_SIZE; i++)
		for (struct communicator *communicator = table[i]; communicator != NULL;
		     communicator = communicator->next) {
			bool close = leave;
			if (communicator->state != COMMUNICATOR_REGION)
				continue;
			for (int rank = 0; rank < communicator->size && !close; rank++)
				close = shared_load_u64(&communicator->peers[rank].block->closed) != 0;
			if (close) {
				store_closed(communicator);
				close_if_ended(communicator);
			}
		}
	if (leave) {
		reap_retired();
		reap_closed();
	}
	(void)pthread_mutex_unlock(&mutex);
	return source_count_kept(0);
}
#pragma GCC visibility pop

/* ---- the table ---- */

static struct communicator **place_of(handle comm)
{
	return &table[handle_hash(comm) % TABLE_SIZE];
}

/* Called by the MPI library when it frees a communicator. */
static int remove_communicator(handle comm, int key, void *value, void *extra)
{
	struct communicator *communicator = value;

	(void)comm;
	(void)key;
	(void)extra;
	(void)pthread_mutex_lock(&mutex);
	for (struct communicator **link = place_of(communicator->handle); *link != NULL;
	     link = &(*link)->next)
		if (*link == communicator) {
			*link = communicator->next;
			break;
		}
	(void)atomic_fetch_add(&removals, 1);
	communicator->next = retired;
	retired = communicator;
	reap_retired();
	(void)pthread_mutex_unlock(&mutex);
	return MPI_OK;
}

/* A duplicate of a communicator is a new one. */
static int copy_nothing(handle comm, int key, void *extra, void *value, void *copy, int *flag)
{
	(void)comm;
	(void)key;
	(void)extra;
	(void)value;
	(void)copy;
	*flag = 0;
	return MPI_OK;
}

typedef int copy_function(handle, int, void *, void *, void *, int *);
typedef int delete_function(handle, int, void *, void *);

/*
 * Not under the mutex: the MPI library may hold a lock of its own while it calls remove_communicator(), which
 * takes the mutex. A second keyval, of two threads that come here at once, is never used.
 */
static bool make_keyval(void)
{
	int made = 0;

	if (atomic_load(&has_keyval))
		return true;
	if (MPI_CALL(Comm_create_keyval, copy_function *, delete_function *, int *,
		     void *)(copy_nothing, remove_communicator, &made, NULL) != MPI_OK)
		return false;
	(void)pthread_mutex_lock(&mutex);
	if (!atomic_load(&has_keyval))
		keyval = made;
	atomic_store(&has_keyval, true);
	(void)pthread_mutex_unlock(&mutex);
	return true;
}

static struct communicator *add(handle comm)
{
	int size = 0;
	int rank = 0;
	int inter = 0;

	if (MPI_CALL(Comm_size, handle, int *)(comm, &size) != MPI_OK || size < 1 ||
	    MPI_CALL(Comm_rank, handle, int *)(comm, &rank) != MPI_OK ||
	    MPI_CALL(Comm_test_inter, handle, int *)(comm, &inter) != MPI_OK || !make_keyval())
		return NULL;
	mpi_look_up_types();
	struct communicator *communicator =
		calloc(1, sizeof(*communicator) + (size_t)size * sizeof(communicator->peers[0]));
	if (communicator == NULL)
		setup_no_memory(size);
	communicator->handle = comm;
	communicator->rank = rank;
	communicator->size = size;
	communicator->retry_at = SETUP_AT;
	if (inter != 0 || size < 2 || size > COMMUNICATOR_MEMBERS_MAX)
		communicator->state = COMMUNICATOR_PASSED;
	(void)pthread_mutex_lock(&mutex);
	communicator->next = *place_of(comm);
	*place_of(comm) = communicator;
	(void)pthread_mutex_unlock(&mutex);
	if (MPI_CALL(Comm_set_attr, handle, int, void *)(comm, keyval, communicator) != MPI_OK) {
		(void)remove_communicator(comm, 0, communicator, NULL);
		return NULL;
	}
	return communicator;
}

static struct communicator *look_up(handle comm)
{
	(void)pthread_mutex_lock(&mutex);
	struct communicator *found = *place_of(comm);
	while (found != NULL && found->handle != comm)
		found = found->next;
	(void)pthread_mutex_unlock(&mutex);
	return found;
}

/*
 * The state of a communicator that is not, or not yet, in the region. The members have begun the same number
 * of collectives, so they decide the same.
 */
static struct communicator *consider(struct communicator *communicator, bool reduces)
{
	uint64_t begun = atomic_load(&communicator->begun);
	bool closed = communicator->state == COMMUNICATOR_CLOSED;

	if (communicator->state == COMMUNICATOR_BROKEN)
		return communicator;
	if (communicator->state == COMMUNICATOR_PASSED ||
	    (begun < communicator->retry_at && (closed || !reduces)))
		return NULL;
	set_up(communicator);
	if (communicator->state == COMMUNICATOR_REGION)
		return communicator;
	if (closed) {
		/* A member that left may come back, but not soon. */
		communicator->state = COMMUNICATOR_CLOSED;
		if (communicator->retry_interval < RETRY_INTERVAL_MAX)
			communicator->retry_interval *= 2;
		communicator->retry_at = begun + communicator->retry_interval;
	}
	return NULL;
}

struct communicator *communicator_find(handle comm, bool reduces)
{
	/* The last communicator of this thread: a program's calls are mostly to one. */
	static __thread __attribute__((tls_model("initial-exec"))) struct {
		handle comm;
		struct communicator *communicator;
		unsigned int removals;
	} last;
	unsigned int now = atomic_load_explicit(&removals, memory_order_acquire);
	struct communicator *communicator = last.communicator;

	if (__builtin_expect(last.comm != comm || last.removals != now || communicator == NULL, 0)) {
		if (atomic_load(&finished) || mpi_is_null_comm(comm) || !mpi_is_usable())
			return NULL;
		communicator = look_up(comm);
		if (communicator == NULL && (communicator = add(comm)) == NULL)
			return NULL;
		last.comm = comm;
		last.communicator = communicator;
		last.removals = atomic_load(&removals);
	}
	/* Only the thread that is in a collective of the communicator writes `begun`. */
	atomic_store_explicit(&communicator->begun,
			      atomic_load_explicit(&communicator->begun, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	if (__builtin_expect(communicator->state == COMMUNICATOR_REGION, 1))
		return communicator;
	return consider(communicator, reduces);
}

/* Under the mutex: a communicator that has to be waited for, and was not in this round. */
static struct communicator *next_to_settle(unsigned int round)
{
	for (unsigned int i = 0; i < TABLE_SIZE; i++)
		for (struct communicator *communicator = table[i]; communicator != NULL;
		     communicator = communicator->next)
			if (communicator->block != NULL && communicator->settled != round &&
			    communicator->state != COMMUNICATOR_BROKEN)
				return communicator;
	return NULL;
}

void communicators_settle(void)
{
	static unsigned int rounds;
	struct communicator *communicator = NULL;

	(void)pthread_mutex_lock(&mutex);
	unsigned int round = ++rounds;
	while ((communicator = next_to_settle(round)) != NULL) {
		/* Another thread may free the communicator of its session meanwhile: then it stays retired.
		 */
		communicator->settled = round;
		communicator->settling = true;
		(void)pthread_mutex_unlock(&mutex);
		(void)step_wait_complete(communicator, communicator->step);
		(void)pthread_mutex_lock(&mutex);
		communicator->settling = false;
	}
	(void)pthread_mutex_unlock(&mutex);
	progress_finish();
}

void communicators_finish(void)
{
	communicators_settle();
	atomic_store(&finished, true);
	/* Open MPI frees MPI_COMM_WORLD without its attributes. A block would keep this member's slot. */
	(void)pthread_mutex_lock(&mutex);
	for (unsigned int i = 0; i < TABLE_SIZE; i++)
		for (struct communicator *communicator = table[i]; communicator != NULL;
		     communicator = communicator->next) {
			communicator->state = COMMUNICATOR_PASSED;
			setup_release(communicator);
		}
	reap_retired();
	(void)pthread_mutex_unlock(&mutex);
	(void)atomic_fetch_add(&removals, 1);
	atomic_store(&has_keyval, false);
}
