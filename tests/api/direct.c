/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * direct.c - reads, writes and atomics of memory in the region: they need no action of the target, keep the
 * promised orders, and end with the registration.
 */
#include "harness.h"

#include <stdatomic.h>

#include "api/vicinal_ext.h"

#define BYTES ((size_t)200000)
#define KEY 7
#define WORDS ((BYTES - 8) / 8)

static unsigned char private[BYTES];

static struct vicinal_heap_ops *heap_of(const struct side *side)
{
	void *operations = NULL;

	SAME(fi_open_ops(&side->domain->fid, VICINAL_HEAP_OPS, 0, &operations, NULL), 0);
	return operations;
}

/* Memory of rank 1 in the region, cleared. The other ranks get none. */
static uint64_t *take_memory(const struct side *side)
{
	void *block = NULL;

	if (side->rank != 1)
		return NULL;
	SAME(heap_of(side)->allocate(side->endpoint, BYTES, 1, &block), 0);
	memset(block, 0, BYTES);
	return block;
}

static struct fid_mr *expose_memory(struct side *side, void *memory)
{
	return memory == NULL ? NULL
			      : side_expose(side, memory, BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE, KEY);
}

static void give_memory(const struct side *side, struct fid_mr *mr, void *memory)
{
	if (mr != NULL)
		SAME(fi_close(&mr->fid), 0);
	if (memory != NULL)
		SAME(heap_of(side)->release(memory), 0);
}

/*
 * Every kind of operation while the target makes none of our calls, in all modes of registration. A request
 * would wait for ever, and the harness would end the scenario.
 */
static void reach_all(int rank, int mode)
{
	struct side side;
	struct fi_context2 context;
	uint64_t one = 1;
	uint64_t seen = 0;

	side_open(&side, rank, &(struct side_options){.mr_mode = mode});
	uint64_t *memory = take_memory(&side);
	struct fid_mr *mr = expose_memory(&side, memory);
	barrier(&side);
	if (rank == 0) {
		uint64_t base = exposed_address(1);
		uint64_t key = exposed_key(1);
		for (size_t i = 0; i < edge_size_count && edge_sizes[i] < BYTES - 8; i++) {
			size_t length = edge_sizes[i];
			static unsigned char back[BYTES];
			if (length == 0) /* no bytes, but the target might count it */
				continue;
			fill(private, length, i);
			SAME(fi_write(side.endpoint, private, length, NULL, side.peer[1], base + 8, key,
				      &context),
			     0);
			CHECK(next_completion(side.sent).op_context == &context);
			SAME(fi_read(side.endpoint, back, length, NULL, side.peer[1], base + 8, key,
				     &context),
			     0);
			SAME(next_completion(side.sent).flags, FI_RMA | FI_READ);
			CHECK_FILLED(back, length, i);
		}
		SAME(fi_inject_write(side.endpoint, &one, 8, side.peer[1], base, key), 0);
		SAME(fi_atomic(side.endpoint, &one, 1, NULL, side.peer[1], base, key, FI_UINT64, FI_SUM,
			       &context),
		     0);
		SAME(next_completion(side.sent).flags, FI_ATOMIC | FI_WRITE);
		SAME(fi_fetch_atomic(side.endpoint, &one, 1, NULL, &seen, NULL, side.peer[1], base, key,
				     FI_UINT64, FI_SUM, &context),
		     0);
		SAME(next_completion(side.sent).flags, FI_ATOMIC | FI_READ);
		SAME(seen, 2);
		uint64_t three = 3;
		uint64_t nine = 9;
		SAME(fi_compare_atomic(side.endpoint, &nine, 1, NULL, &three, NULL, &seen, NULL, side.peer[1],
				       base, key, FI_UINT64, FI_CSWAP, &context),
		     0);
		(void)next_completion(side.sent);
		SAME(seen, 3);
	}
	barrier(NULL);
	if (rank == 1)
		SAME(memory[0], 9);
	barrier(&side);
	give_memory(&side, mr, memory);
	side_close(&side);
}

static void alone(int rank)
{
	static const int modes[] = {0, FI_MR_ENDPOINT, FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
				    FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT};

	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		reach_all(rank, modes[i]);
}

/* A registration that is closed, or never fitted, is refused, and the next operation succeeds. */
static void revoked(int rank)
{
	struct side side;
	struct fi_context2 context;
	uint64_t value = 5;

	side_open(&side, rank, NULL);
	uint64_t *memory = take_memory(&side);
	for (int round = 0; round < 3; round++) {
		struct fid_mr *mr = expose_memory(&side, memory);
		barrier(&side);
		if (rank == 0) {
			SAME(fi_write(side.endpoint, &value, 8, NULL, side.peer[1], 16, KEY, &context), 0);
			(void)next_completion(side.sent);
			POST(&side, fi_write(side.endpoint, &value, 8, NULL, side.peer[1], BYTES - 7, KEY,
					     &context));
			SAME(next_error(side.sent).err, FI_EACCES);
			POST(&side,
			     fi_read(side.endpoint, &value, 8, NULL, side.peer[1], 0, KEY + 1, &context));
			SAME(next_error(side.sent).err, FI_EKEYREJECTED);
			POST(&side, fi_atomic(side.endpoint, &value, 1, NULL, side.peer[1], 4, KEY, FI_UINT64,
					      FI_SUM, &context));
			SAME(next_error(side.sent).err, FI_EINVAL);
		}
		barrier(&side);
		if (mr != NULL) {
			SAME(fi_close(&mr->fid), 0);
			SAME(memory[2], 5);
			memory[2] = 0;
		}
		barrier(&side);
		if (rank == 0) {
			POST(&side,
			     fi_write(side.endpoint, &value, 8, NULL, side.peer[1], 16, KEY, &context));
			SAME(next_error(side.sent).err, FI_EKEYREJECTED);
		}
		barrier(&side);
		if (rank == 1)
			SAME(memory[2], 0);
	}
	give_memory(&side, NULL, memory);
	side_close(&side);
}

/* Memory that all endpoints could reach is bound to one endpoint: from then on the others cannot reach it. */
static void bound_later(int rank)
{
	struct side side;
	uint64_t value = 5;

	side_open(&side, rank, &(struct side_options){.endpoints = 2});
	uint64_t *memory = take_memory(&side);
	struct fid_mr *mr = expose_memory(&side, memory);
	for (int bound = 0; bound < 2; bound++) {
		if (bound && rank == 1)
			SAME(fi_mr_bind(mr, &side.endpoints[1]->fid, 0), 0);
		barrier(&side);
		for (int i = 0; i < 2 && rank == 0; i++) {
			POST(&side, fi_write(side.endpoint, &value, 8, NULL, side.peers[1][i], 0, KEY, NULL));
			if (bound && i == 0)
				SAME(next_error(side.sent).err, FI_EKEYREJECTED);
			else
				SAME(next_completion(side.sent).flags, FI_RMA | FI_WRITE);
		}
		barrier(&side);
	}
	give_memory(&side, mr, memory);
	side_close(&side);
}

/*
 * The same memory under two keys. The target counts writes under one key, so they go through the target.
 * Memory under the other key is accessed directly. Neither route overtakes the other.
 */
static void ordered(int rank)
{
	struct side side;
	struct fid_cntr *counter = NULL;
	struct fid_mr *counted = NULL;
	struct fi_cntr_attr attributes = {.events = FI_CNTR_EVENTS_COMP};
	struct fi_context2 context;
	uint64_t state = 11;
	uint64_t through = 0;

	side_open(&side, rank, NULL);
	uint64_t *memory = take_memory(&side);
	struct fid_mr *mr = expose_memory(&side, memory);
	if (rank == 1) {
		SAME(fi_cntr_open(side.domain, &attributes, &counter, NULL), 0);
		SAME(fi_mr_reg(side.domain, memory, BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY + 1, 0,
			       &counted, NULL),
		     0);
		SAME(fi_mr_bind(counted, &counter->fid, FI_REMOTE_WRITE), 0);
	}
	barrier(&side);
	for (int i = 0; rank == 0 && i < 2000; i++) {
		uint64_t word = next_random(&state) % 4 * 8;
		uint64_t value = (uint64_t)i + 1;
		uint64_t key = next_random(&state) % 3 == 0 ? KEY + 1 : KEY;
		uint64_t seen = 0;
		through += key != KEY;
		POST(&side, fi_inject_write(side.endpoint, &value, 8, side.peer[1], word, key));
		if (next_random(&state) % 4 != 0)
			continue;
		POST(&side, fi_read(side.endpoint, &seen, 8, NULL, side.peer[1], word,
				    next_random(&state) % 2 == 0 ? KEY : KEY + 1, &context));
		(void)next_completion(side.sent);
		SAME(seen, value);
	}
	if (rank == 0)
		atomic_store(shared_word(10), through);
	barrier(&side);
	if (rank == 1) {
		while (fi_cntr_read(counter) < atomic_load(shared_word(10)))
			side_progress(&side);
		SAME(fi_cntr_read(counter), atomic_load(shared_word(10)));
		SAME(fi_close(&counted->fid), 0);
		SAME(fi_close(&counter->fid), 0);
	}
	give_memory(&side, mr, memory);
	side_close(&side);
}

/* A message confirms that the write before it is there. */
static void then_told(int rank)
{
	struct side side;
	struct fi_context2 context;

	side_open(&side, rank, NULL);
	uint64_t *memory = take_memory(&side);
	struct fid_mr *mr = expose_memory(&side, memory);
	barrier(&side);
	for (uint64_t i = 1; i <= 500; i++) {
		uint64_t word = i * 37 % WORDS;
		uint64_t told = 0;
		if (rank == 0) {
			SAME(fi_inject_write(side.endpoint, &i, 8, side.peer[1], word * 8, KEY), 0);
			POST(&side, fi_tinject(side.endpoint, &i, 8, side.peer[1], 1));
		} else {
			POST(&side, fi_trecv(side.endpoint, &told, 8, NULL, side.peer[0], 1, 0, &context));
			(void)next_completion(side.received);
			SAME(told, i);
			SAME(memory[word], i);
		}
	}
	barrier(&side);
	give_memory(&side, mr, memory);
	side_close(&side);
}

/*
 * If an endpoint asks for this order, its reads and writes come after the messages before them: they go
 * through the target, which makes no progress for now. Without the order, nothing is promised.
 */
static void after_messages(int rank)
{
	const uint64_t order = FI_ORDER_SAS | FI_ORDER_RAS | FI_ORDER_WAS;
	struct side side;
	struct fi_context2 context;
	uint64_t value = 4;

	for (int who = 0; who < 3; who++) { /* nobody, the initiator, the target */
		uint64_t asked = who == rank + 1 ? order : 0;
		side_open(&side, rank, &(struct side_options){.order = asked});
		SAME(side.info->tx_attr->msg_order & (FI_ORDER_RAS | FI_ORDER_WAS), asked & ~FI_ORDER_SAS);
		SAME(side.info->rx_attr->msg_order & (FI_ORDER_RAS | FI_ORDER_WAS), asked & ~FI_ORDER_SAS);
		uint64_t *memory = take_memory(&side);
		struct fid_mr *mr = expose_memory(&side, memory);
		barrier(&side);
		if (rank == 0)
			SAME(fi_write(side.endpoint, &value, 8, NULL, side.peer[1], 0, KEY, &context), 0);
		barrier(NULL);
		if (rank == 1)
			SAME(memory[0], who == 0 ? 4 : 0);
		barrier(NULL);
		if (rank == 0)
			(void)next_completion(side.sent);
		barrier(&side);
		if (rank == 1)
			SAME(memory[0], 4);
		give_memory(&side, mr, memory);
		side_close(&side);
	}
}

/* All ranks add to the same words. The owner adds by its own instructions and by operations on itself. */
static void added_by_all(int rank)
{
	enum { TIMES = 3000 };
	struct side side;
	struct fi_context2 context;
	uint64_t one = 1;
	uint64_t seen = 0;
	uint32_t small = 1;

	side_open(&side, rank, NULL);
	uint64_t *memory = take_memory(&side);
	struct fid_mr *mr = expose_memory(&side, memory);
	barrier(&side);
	for (int i = 0; i < TIMES; i++) {
		POST(&side, fi_fetch_atomic(side.endpoint, &one, 1, NULL, &seen, NULL, side.peer[1], 0, KEY,
					    FI_UINT64, FI_SUM, &context));
		(void)next_completion(side.sent);
		POST(&side,
		     fi_inject_atomic(side.endpoint, &small, 1, side.peer[1], 12, KEY, FI_UINT32, FI_SUM));
		if (rank == 1)
			(void)__atomic_fetch_add(memory, 1, __ATOMIC_RELAXED);
	}
	barrier(&side);
	if (rank == 1) {
		SAME(memory[0], TIMES * (ranks() + 1));
		SAME(memory[1] >> 32, TIMES * ranks());
		SAME(memory[1] & UINT32_MAX, 0);
	}
	barrier(&side);
	give_memory(&side, mr, memory);
	side_close(&side);
}

const struct scenario direct_scenarios[] = {
	{"alone", 2, alone},
	{"revoked", 2, revoked},
	{"bound_later", 2, bound_later},
	{"ordered", 2, ordered},
	{"then_told", 2, then_told},
	{"after_messages", 2, after_messages},
	{"added_by_all", 3, added_by_all},
	{NULL, 0, NULL},
};
