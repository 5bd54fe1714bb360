/* SPDX-License-Identifier: BSD-3-Clause */
/* communicator.c - which communicators use the region, and the lifetime of their blocks. */
#include "collectives/communicator.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "collectives/wait.h"

/*
 * The collective in which a communicator gets a block, counted from 0. Earlier ones are the MPI library's,
 * because many communicators are used once. A reduction is never among them: the same sum must have the same
 * result each time, and the MPI library may add in another order.
 */
#define CALLS_BEFORE_SETUP 1

/* The same after a member had to leave. Doubled at each attempt that fails. */
#define CALLS_BEFORE_RETRY 1024
#define CALLS_BEFORE_RETRY_MAX (1 << 20)

#define TABLE_SIZE 256U
/* Staging buffers of this process at most, because programs may make communicators by the thousand. */
#define STAGINGS_MAX 16

/* Never held while an MPI function is called. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* Under the mutex. */
static struct communicator *table[TABLE_SIZE];
static struct communicator *retired;
static int stagings;
static bool has_source;
static bool leaving;                /* the manager asks this member to leave the region */
static bool can_leave;              /* this process can execute barriers in all its threads */
static struct region_source source; /* constant once `has_source` is set, until the next offer */
static int keyval;
static atomic_bool has_keyval;
/* Incremented when a communicator is removed from the table: all threads look up again. */
static atomic_uint removals;
static atomic_bool finished;

/* ---- the region ---- */

#pragma GCC visibility push(default)
region_offer_function vicinal_region_offer;

int vicinal_region_offer(const struct region_source *offered)
{
	int result = 0;

	if (offered->version != REGION_SOURCE_VERSION)
		return -EPROTONOSUPPORT;
	(void)pthread_mutex_lock(&mutex);
	/* The first endpoint carries the program's messages. After MPI_Finalize(), a new one may. */
	if (has_source && !atomic_load(&finished))
		result = -EBUSY;
	else
		source = *offered;
	has_source = true;
	leaving = false;
	can_leave = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
	atomic_store(&finished, false);
	(void)pthread_mutex_unlock(&mutex);
	return result;
}
#pragma GCC visibility pop

static unsigned char *heap_of_slot(uint32_t slot)
{
	return source.first_heap + (size_t)slot * source.section_bytes;
}

bool communicator_peer_is_gone(struct communicator *communicator, int rank)
{
	struct communicator_peer *peer = &communicator->peers[rank];

	return source.is_gone(source.member, peer->slot, peer->epoch, peer->heartbeat);
}

void communicator_wait_elsewhere(bool waits)
{
	source.wait_elsewhere(waits);
}

/* ---- what the members tell each other ---- */

struct description {
	uint64_t version; /* of this exchange and of struct block; 0: no region */
	uint64_t id[2];
	uint64_t number;
	uint64_t block; /* offset in the heap of the member's section */
	uint32_t slot;
	uint32_t epoch;
};
#define EXCHANGE_VERSION UINT64_C(1)

static bool is_valid(const struct description *theirs, const struct description *mine)
{
	return theirs->version == EXCHANGE_VERSION && theirs->id[0] == mine->id[0] &&
	       theirs->id[1] == mine->id[1] && theirs->slot < source.members &&
	       theirs->block % BLOCK_BYTES % 4096 == 0 && theirs->block <= source.heap_bytes &&
	       BLOCK_BYTES <= source.heap_bytes - theirs->block;
}

static void reset(struct block *block, uint64_t number)
{
	/* In this order: a member of a former communicator reads `done`, and then `number`. */
	shared_release_u64(&block->number, number);
	shared_release_u64(&block->done, 0);
	shared_release_u64(&block->closed, 0);
	for (unsigned int i = 0; i < CELLS; i++) {
		shared_store_u64(&block->cells[i].control, 0);
		shared_store_u64(&block->cells[i].kind, 0);
	}
	shared_fence_full();
}

static int allgather(const void *from, void *to, int bytes, handle comm)
{
	return MPI_CALL(Allgather, const void *, int, handle, void *, int, handle,
			handle)(from, bytes, mpi.byte, to, bytes, mpi.byte, comm);
}

/* Has every member completed all steps? Its block may belong to another communicator by now. */
static bool is_complete(const struct communicator *communicator, int rank, uint64_t step)
{
	const struct block *block = communicator->peers[rank].block;

	return rank == communicator->rank || shared_acquire_u64(&block->done) >= step ||
	       shared_acquire_u64(&block->number) != communicator->number;
}

/* Under the mutex. */
static void release_memory(struct communicator *communicator)
{
	if (communicator->staging != NULL) {
		(void)source.release((void *)communicator->staging);
		stagings--;
	}
	if (communicator->block != NULL)
		(void)source.release(communicator->block);
	communicator->staging = NULL;
	communicator->block = NULL;
}

static bool all_complete(const struct communicator *communicator)
{
	for (int rank = 0; rank < communicator->size; rank++)
		if (!is_complete(communicator, rank, communicator->step))
			return false;
	return true;
}

/* Under the mutex: releases the blocks of freed and closed communicators that no member reads any more. */
static void reap(void)
{
	struct communicator **link = &retired;

	while (*link != NULL) {
		struct communicator *communicator = *link;
		if (!all_complete(communicator)) {
			link = &communicator->next;
			continue;
		}
		*link = communicator->next;
		release_memory(communicator);
		free(communicator);
	}
	for (unsigned int i = 0; i < TABLE_SIZE; i++)
		for (struct communicator *communicator = table[i]; communicator != NULL;
		     communicator = communicator->next)
			if (communicator->state == COMMUNICATOR_CLOSED && communicator->block != NULL &&
			    all_complete(communicator))
				release_memory(communicator);
}

/*
 * Sets a communicator up by two exchanges of messages. The second one makes sure that all members decide the
 * same.
 */
static void set_up(struct communicator *communicator, handle comm)
{
	size_t size = (size_t)communicator->size;
	struct description *all = calloc(size, sizeof(*all));
	unsigned char *agreed = calloc(size, 1);
	struct description mine = {.version = 0};
	struct block *block = NULL;

	(void)pthread_mutex_lock(&mutex);
	reap();
	/* A closed communicator keeps its old block until no member reads it. */
	if (has_source && !leaving && can_leave && communicator->block == NULL && all != NULL &&
	    agreed != NULL) {
		block = source.allocate(source.heap, BLOCK_BYTES, 1, false);
		mine = (struct description){
			.version = block != NULL ? EXCHANGE_VERSION : 0,
			.id = {source.id[0], source.id[1]},
			.block = block != NULL
					 ? (uint64_t)((unsigned char *)block - heap_of_slot(source.slot))
					 : 0,
			.slot = source.slot,
			.epoch = source.epoch,
		};
		(void)!getrandom(&mine.number, sizeof(mine.number), 0);
		mine.number |= 1;
	}
	(void)pthread_mutex_unlock(&mutex);
	communicator->state = COMMUNICATOR_PASSED;
	if (all == NULL || agreed == NULL) {
		(void)fprintf(stderr,
			      "vicinal: error: no memory is left for a communicator of %zu ranks: the "
			      "job cannot go on\n",
			      size);
		abort();
	}
	if (block != NULL)
		reset(block, 0);
	bool valid = allgather(&mine, all, sizeof(mine), comm) == MPI_OK && block != NULL;
	for (size_t rank = 0; rank < size && valid; rank++)
		valid = is_valid(&all[rank], &mine);
	if (valid) {
		communicator->number = all[0].number;
		reset(block, communicator->number);
	}
	unsigned char answer = valid ? 1 : 0;
	valid = allgather(&answer, agreed, 1, comm) == MPI_OK && valid;
	for (size_t rank = 0; rank < size && valid; rank++)
		valid = agreed[rank] == 1;
	for (size_t rank = 0; rank < size && valid; rank++) {
		struct communicator_peer *peer = &communicator->peers[rank];
		peer->block =
			(const struct block *)(const void *)(heap_of_slot(all[rank].slot) + all[rank].block);
		peer->slot = all[rank].slot;
		peer->epoch = all[rank].epoch;
	}
	free(all);
	free(agreed);
	(void)pthread_mutex_lock(&mutex);
	if (valid) {
		communicator->block = block;
		communicator->step = 0;
		communicator->complete = 0;
		communicator->no_staging = false;
		atomic_store(&communicator->begun, 0);
		atomic_store(&communicator->ended, 0);
		atomic_store(&communicator->closing, false);
		communicator->state = COMMUNICATOR_REGION;
	} else if (block != NULL) {
		(void)source.release(block);
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
	/* More than 0, so that a communicator closes that has begun none. */
	shared_release_u64(&communicator->block->closed, atomic_load(&communicator->begun) + 1);
}

/* The last collective through the region. Returns false while a member has not said how many it has begun. */
static bool last_collective(const struct communicator *communicator, uint64_t *last)
{
	*last = 0;
	for (int rank = 0; rank < communicator->size; rank++) {
		uint64_t closed = shared_acquire_u64(&communicator->peers[rank].block->closed);
		/* A member that released its block has seen all the numbers, and its own was not higher. */
		bool released =
			shared_acquire_u64(&communicator->peers[rank].block->number) != communicator->number;
		if (closed == 0 && !released)
			return false;
		if (!released && closed - 1 > *last)
			*last = closed - 1;
	}
	return true;
}

/* Under the mutex: closes the communicator if its last collective through the region has ended here. */
static void close_if_ended(struct communicator *communicator)
{
	uint64_t last = 0;

	if (atomic_load(&communicator->closing) && last_collective(communicator, &last) &&
	    atomic_load(&communicator->ended) >= last &&
	    atomic_load(&communicator->ended) >= atomic_load(&communicator->begun)) {
		communicator->state = COMMUNICATOR_CLOSED;
		communicator->calls = 0;
		communicator->calls_before = CALLS_BEFORE_RETRY;
	}
}

bool communicator_enter_closing(struct communicator *communicator)
{
	uint64_t this_one = atomic_load(&communicator->begun);
	uint64_t last = 0;
	struct wait wait = {.rounds = 0};

	/* The provider's progress calls vicinal_region_attend() meanwhile. */
	for (int rank = 0; !last_collective(communicator, &last); rank = (rank + 1) % communicator->size)
		if (!wait_go_on(&wait, communicator, rank)) {
			communicator_break(communicator, rank, "ended, or left the region");
			return true;
		}
	if (this_one <= last)
		return true;
	(void)pthread_mutex_lock(&mutex);
	atomic_store(&communicator->begun, last);
	atomic_store(&communicator->ended, last);
	close_if_ended(communicator);
	(void)pthread_mutex_unlock(&mutex);
	return false;
}

#pragma GCC visibility push(default)
region_attend_function vicinal_region_attend;

void vicinal_region_attend(bool leave)
{
	(void)pthread_mutex_lock(&mutex);
	leaving = leave;
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
	if (leave)
		reap();
	(void)pthread_mutex_unlock(&mutex);
}
#pragma GCC visibility pop

/* ---- the table ---- */

static struct communicator **place_of(handle comm)
{
	return &table[(uint32_t)((uint64_t)comm * UINT64_C(0x9e3779b97f4a7c15) >> 40) % TABLE_SIZE];
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
	if (communicator->block == NULL) {
		free(communicator);
	} else {
		communicator->next = retired;
		retired = communicator;
	}
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
		return NULL;
	communicator->handle = comm;
	communicator->rank = rank;
	communicator->size = size;
	communicator->calls_before = CALLS_BEFORE_SETUP;
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

/* A member that left may come back, but not soon. The members count the same calls. */
static void retry_later(struct communicator *communicator)
{
	communicator->state = COMMUNICATOR_CLOSED;
	communicator->calls = 0;
	if (communicator->calls_before < CALLS_BEFORE_RETRY_MAX)
		communicator->calls_before *= 2;
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
	if (__builtin_expect(communicator->state == COMMUNICATOR_REGION, 1))
		return communicator;
	if (communicator->state == COMMUNICATOR_BROKEN)
		return communicator;
	if ((communicator->state == COMMUNICATOR_NEW || communicator->state == COMMUNICATOR_CLOSED) &&
	    (communicator->calls++ >= communicator->calls_before ||
	     (reduces && communicator->state == COMMUNICATOR_NEW))) {
		bool closed = communicator->state == COMMUNICATOR_CLOSED;
		set_up(communicator, comm);
		if (communicator->state == COMMUNICATOR_REGION)
			return communicator;
		if (closed)
			retry_later(communicator);
	}
	return NULL;
}

void communicators_settle(void)
{
	for (unsigned int i = 0; i < TABLE_SIZE; i++)
		for (struct communicator *communicator = table[i]; communicator != NULL;
		     communicator = communicator->next)
			if (communicator->block != NULL && communicator->state != COMMUNICATOR_BROKEN)
				(void)step_wait_complete(communicator, communicator->step);
	progress_finish();
}

void communicators_finish(void)
{
	communicators_settle();
	atomic_store(&finished, true);
	(void)atomic_fetch_add(&removals, 1);
	atomic_store(&has_keyval, false);
}

/* ---- staging buffers ---- */

enum { COLLECTIVE_STAGE = 255 };

bool communicator_stage(struct communicator *communicator)
{
	shared_bytes *staging = NULL;
	uint64_t offset = 0;
	bool everywhere = true;
	uint64_t kind = step_kind(COLLECTIVE_STAGE, 0, sizeof(offset));

	(void)pthread_mutex_lock(&mutex);
	if (stagings < STAGINGS_MAX) {
		staging = source.allocate(source.heap, STAGING_BYTES, 1, false);
		stagings += staging != NULL ? 1 : 0;
	}
	(void)pthread_mutex_unlock(&mutex);
	if (staging != NULL)
		offset = (uint64_t)((unsigned char *)staging - heap_of_slot(source.slot)) + 1;
	communicator->staging = staging;
	uint64_t step = step_begin(communicator);
	if (step == 0)
		return false;
	shared_copy_out(step_data(communicator, step, false), &offset, sizeof(offset));
	step_publish(communicator, step, kind);
	for (int rank = 0; rank < communicator->size; rank++) {
		const shared_bytes *data = step_read(communicator, rank, step, kind, false);
		if (data == NULL)
			return false;
		shared_copy_in(&offset, data, sizeof(offset));
		if (offset == 0) {
			everywhere = false;
		} else if ((offset - 1) % 4096 != 0 || offset - 1 > source.heap_bytes ||
			   STAGING_BYTES > source.heap_bytes - (offset - 1)) {
			communicator_break(communicator, rank, "names memory outside its heap");
			return false;
		} else {
			communicator->peers[rank].staging =
				(const shared_bytes *)(heap_of_slot(communicator->peers[rank].slot) + offset -
						       1);
		}
	}
	step_end(communicator, step, true);
	if (!everywhere) {
		communicator->no_staging = true;
		communicator->staging = NULL;
		(void)pthread_mutex_lock(&mutex);
		if (staging != NULL) {
			(void)source.release((void *)staging);
			stagings--;
		}
		(void)pthread_mutex_unlock(&mutex);
	}
	return true;
}
