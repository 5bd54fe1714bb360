/* SPDX-License-Identifier: BSD-3-Clause */
/* heap.c - memory of the application in the region, requested with fi_open_ops(). */
#include "harness.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/vicinal_ext.h"

#define PAGE ((size_t)4096)

static struct vicinal_heap_ops *heap_of(const struct side *side)
{
	void *operations = NULL;

	SAME(fi_open_ops(&side->domain->fid, VICINAL_HEAP_OPS, 0, &operations, NULL), 0);
	struct vicinal_heap_ops *heap = operations;
	CHECK(heap->size >= sizeof(*heap));
	return heap;
}

static uint64_t used(const struct vicinal_heap_ops *heap, struct fid_ep *endpoint)
{
	uint64_t total = 0;
	uint64_t bytes = 0;

	SAME(heap->query(endpoint, &total, &bytes), 0);
	CHECK(total > 0 && bytes <= total);
	return bytes;
}

static void misused(int rank)
{
	struct side side;
	void *operations = NULL;
	void *block = NULL;
	uint64_t total = 0;
	uint64_t bytes = 0;

	side_prepare(&side, rank, &(struct side_options){0});
	SAME(fi_open_ops(&side.domain->fid, "no such operations", 0, &operations, NULL), -FI_ENOSYS);
	SAME(fi_open_ops(&side.domain->fid, VICINAL_HEAP_OPS, 1, &operations, NULL), -FI_EINVAL);
	SAME(fi_open_ops(&side.domain->fid, NULL, 0, &operations, NULL), -FI_EINVAL);
	struct vicinal_heap_ops *heap = heap_of(&side);
	struct fid_ep *endpoint = side_endpoint(&side, &(struct side_options){0});
	SAME(heap->allocate(endpoint, 1, 1, &block), -FI_EOPBADSTATE);
	SAME(heap->query(endpoint, &total, &bytes), -FI_EOPBADSTATE);
	SAME(fi_enable(endpoint), 0);
	SAME(heap->allocate(endpoint, 1, 0, &block), -FI_EINVAL);
	SAME(heap->allocate(endpoint, 1, 24, &block), -FI_EINVAL);
	SAME(heap->allocate(endpoint, 1, 1, NULL), -FI_EINVAL);
	SAME(heap->allocate(NULL, 1, 1, &block), -FI_EINVAL);
	SAME(heap->query(endpoint, NULL, &bytes), -FI_EINVAL);
	SAME(heap->query(endpoint, &total, &bytes), 0);
	SAME(heap->allocate(endpoint, total + 1, 1, &block), -FI_ENOMEM);
	SAME(heap->allocate(endpoint, SIZE_MAX, 1, &block), -FI_ENOMEM);
	SAME(heap->release(NULL), -FI_EINVAL);
	SAME(heap->release(&side), -FI_EINVAL);
	SAME(heap->allocate(endpoint, 0, 1, &block), 0);
	SAME(used(heap, endpoint), PAGE);
	SAME(heap->release((char *)block + 1), -FI_EINVAL);
	SAME(heap->release(block), 0);
	SAME(heap->release(block), -FI_EINVAL);
	/* All of it, with any alignment, and then no more. */
	SAME(heap->allocate(endpoint, total, 1, &block), 0);
	memset(block, 1, total);
	void *more = NULL;
	SAME(heap->allocate(endpoint, 1, 1, &more), -FI_ENOMEM);
	SAME(heap->release(block), 0);
	SAME(heap->allocate(endpoint, 5000, 65536, &block), 0);
	SAME((uintptr_t)block % 65536, 0);
	SAME(heap->release(block), 0);
	SAME(used(heap, endpoint), 0);
	SAME(fi_close(&endpoint->fid), 0);
	side_close(&side);
}

/* Messages between blocks, of all sizes, and between blocks and private memory. */
static void messages(int rank)
{
	static unsigned char private[EDGE_SIZE_MAX];
	struct side side;
	struct fi_context2 context;
	void *block = NULL;

	side_open(&side, rank, NULL);
	struct vicinal_heap_ops *heap = heap_of(&side);
	SAME(heap->allocate(side.endpoint, EDGE_SIZE_MAX, 1, &block), 0);
	for (int way = 0; way < 4; way++) {
		bool here = rank == 0 ? (way & 1) != 0 : (way & 2) != 0;
		unsigned char *buffer = here ? block : private;
		for (size_t i = 0; i < edge_size_count; i++) {
			uint64_t seed = (uint64_t)way * 1000 + i;
			if (rank == 0) {
				fill(buffer, edge_sizes[i], seed);
				POST(&side, fi_tsend(side.endpoint, buffer, edge_sizes[i], NULL, side.peer[1],
						     seed, &context));
				(void)next_completion(side.sent);
			} else {
				POST(&side, fi_trecv(side.endpoint, buffer, edge_sizes[i], NULL,
						     FI_ADDR_UNSPEC, seed, 0, &context));
				(void)next_completion(side.received);
				CHECK_FILLED(buffer, edge_sizes[i], seed);
			}
			barrier(&side);
		}
	}
	SAME(heap->release(block), 0);
	side_close(&side);
}

/* Each endpoint has its own heap, and a block outlives its endpoint. */
static void several(int rank)
{
	struct side side;
	void *blocks[2] = {NULL};

	side_open(&side, rank, &(struct side_options){.endpoints = 2});
	struct vicinal_heap_ops *heap = heap_of(&side);
	for (int i = 0; i < 2; i++) {
		SAME(heap->allocate(side.endpoints[i], 100000, 1, &blocks[i]), 0);
		fill(blocks[i], 100000, (uint64_t)i);
		SAME(used(heap, side.endpoints[i]), 25 * PAGE);
	}
	side_close(&side);
	CHECK_FILLED(blocks[1], 100000, 1);
	SAME(heap->release(blocks[1]), 0);
	CHECK_FILLED(blocks[0], 100000, 0);
	SAME(heap->release(blocks[0]), 0);
	SAME(heap->release(blocks[0]), -FI_EINVAL);
}

/* ---- forks ---- */

struct registering {
	struct side *side;
	void *block;
	atomic_bool stop;
	atomic_uint rounds;
};

static void *keep_registering(void *argument)
{
	struct registering *busy = argument;

	for (; !atomic_load(&busy->stop); atomic_fetch_add(&busy->rounds, 1)) {
		struct fid_mr *mr = NULL;
		SAME(fi_mr_reg(busy->side->domain, busy->block, PAGE, FI_REMOTE_WRITE, 0, 1, 0, &mr, NULL),
		     0);
		SAME(fi_close(&mr->fid), 0);
		(void)sched_yield();
	}
	return NULL;
}

/* Calls of a thread in a domain with a heap, and a fork, do not block each other; nor do calls of a child. */
static void forks_meanwhile(int rank)
{
	struct side side;
	struct registering busy = {.side = &side};
	pthread_t thread;

	side_open(&side, rank, NULL);
	struct vicinal_heap_ops *heap = heap_of(&side);
	SAME(heap->allocate(side.endpoint, PAGE, 1, &busy.block), 0);
	SAME(pthread_create(&thread, NULL, keep_registering, &busy), 0);
	while (atomic_load(&busy.rounds) == 0)
		(void)sched_yield();
	for (int i = 0; i < 100; i++) {
		int status = 0;
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0)
			_exit(heap->release(busy.block) == 0 ? 0 : 1);
		SAME(waitpid(child, &status, 0), child);
		SAME(status, 0);
	}
	atomic_store(&busy.stop, true);
	SAME(pthread_join(thread, NULL), 0);
	SAME(heap->release(busy.block), 0);
	side_close(&side);
}

const struct scenario heap_scenarios[] = {
	{"misused", 1, misused}, {"messages", 2, messages},
	{"several", 1, several}, {"forks_meanwhile", 1, forks_meanwhile},
	{NULL, 0, NULL},
};
