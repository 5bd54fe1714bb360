/* SPDX-License-Identifier: BSD-3-Clause */
/* rma.c - reads and writes of another rank's memory: every call, of all sizes and in any number. */
#include <stdatomic.h>
#include <stdlib.h>

#include "harness.h"

#define KEY 4711

static unsigned char memory[EDGE_SIZE_MAX + 4096];
static unsigned char buffer[EDGE_SIZE_MAX + 4096];
static unsigned char again[EDGE_SIZE_MAX + 4096];

/* Every size around a protocol's limit, written and read back. The target only makes progress. */
static void sizes_in_mode(int rank, int mode)
{
	struct side side;

	side_open(&side, rank, &(struct side_options){.mr_mode = mode});
	struct fid_mr *mr = side_expose(&side, memory, sizeof(memory), REMOTE_BOTH, KEY + (uint64_t)rank);
	barrier(&side);
	for (size_t i = 0; i < edge_size_count && rank == 0; i++) {
		size_t size = edge_sizes[i];
		uint64_t address = exposed_address(1) + 3 * i;
		fill(buffer, size, i);
		POST(&side, fi_write(side.endpoint, buffer, size, NULL, side.peer[1], address, exposed_key(1),
				     &side));
		expect_completion(&side, &side, WRITTEN);
		memset(again, 0xee, size + 1);
		POST(&side,
		     fi_read(side.endpoint, again, size, NULL, side.peer[1], address, exposed_key(1), again));
		expect_completion(&side, again, READ);
		CHECK_FILLED(again, size, i);
		SAME(again[size], 0xee);
	}
	barrier(&side);
	if (rank == 1) {
		size_t last = edge_size_count - 1;
		CHECK_FILLED(memory + 3 * last, edge_sizes[last], last);
		expect_nothing(&side, side.received);
	}
	barrier(&side);
	SAME(fi_close(&mr->fid), 0);
	side_close(&side);
}

static void sizes(int rank)
{
	sizes_in_mode(rank, 0);
}

static void sizes_at_addresses(int rank)
{
	sizes_in_mode(rank, FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT);
}

/* To itself, too. */
static void own_memory(int rank)
{
	struct side side;

	side_open(&side, rank, NULL);
	struct fid_mr *mr = side_expose(&side, memory, sizeof(memory), REMOTE_BOTH, KEY);
	for (size_t i = 0; i < edge_size_count; i++) {
		fill(buffer, edge_sizes[i], i);
		POST(&side, fi_write(side.endpoint, buffer, edge_sizes[i], NULL, side.peer[0], 5, KEY, NULL));
		expect_completion(&side, NULL, WRITTEN);
		CHECK_FILLED(memory + 5, edge_sizes[i], i);
		POST(&side, fi_read(side.endpoint, again, edge_sizes[i], NULL, side.peer[0], 5, KEY, NULL));
		expect_completion(&side, NULL, READ);
		CHECK_FILLED(again, edge_sizes[i], i);
	}
	SAME(fi_close(&mr->fid), 0);
	side_close(&side);
}

/* Pieces here against ranges there, divided differently. */
static void pieces(int rank)
{
	static const size_t totals[] = {4, 60, 400, 4000, 4096, 4100, 70000, 300000};
	struct side side;

	side_open(&side, rank, NULL);
	struct fid_mr *mr = side_expose(&side, memory, sizeof(memory), REMOTE_BOTH, KEY);
	barrier(&side);
	for (size_t i = 0; i < sizeof(totals) / sizeof(totals[0]) && rank == 0; i++)
		for (size_t here = 1; here <= 4; here++)
			for (size_t there = 1; there <= 4; there++) {
				size_t total = totals[i];
				struct iovec local[4];
				struct fi_rma_iov ranges[4];
				size_t used = 0;
				for (size_t k = 0; k < here; k++) {
					size_t part = k + 1 == here ? total - used : total / here + k % 2;
					local[k] = (struct iovec){buffer + used, part};
					used += part;
				}
				used = 0;
				for (size_t k = there; k-- > 0;) { /* in another order, with gaps */
					size_t part = k == 0 ? total - used : total / there - k % 2;
					ranges[there - 1 - k] =
						(struct fi_rma_iov){k * (total + 8), part, KEY};
					used += part;
				}
				struct fi_msg_rma message = {
					.msg_iov = local,
					.iov_count = here,
					.addr = side.peer[1],
					.rma_iov = ranges,
					.rma_iov_count = there,
					.context = &message,
				};
				uint64_t seed = i * 16 + here * 4 + there;
				fill(buffer, total, seed);
				POST(&side, fi_writemsg(side.endpoint, &message, FI_DELIVERY_COMPLETE));
				expect_completion(&side, &message, WRITTEN);
				memset(buffer, 0, total);
				POST(&side, fi_readmsg(side.endpoint, &message, 0));
				expect_completion(&side, &message, READ);
				CHECK_FILLED(buffer, total, seed);
				if (there > 1)
					continue;
				fill(buffer, total, seed + 1);
				POST(&side, fi_writev(side.endpoint, local, NULL, here, side.peer[1], 0, KEY,
						      local));
				expect_completion(&side, local, WRITTEN);
				memset(buffer, 0, total);
				POST(&side,
				     fi_readv(side.endpoint, local, NULL, here, side.peer[1], 0, KEY, local));
				expect_completion(&side, local, READ);
				CHECK_FILLED(buffer, total, seed + 1);
			}
	barrier(&side);
	SAME(fi_close(&mr->fid), 0);
	side_close(&side);
}

/* Data arrives with the last byte, and names its source. */
static void data(int rank)
{
	static const size_t lengths[] = {0, 8, 32, 33, 400, 425, 4000, 5000, 100000, 400000};
	const size_t count = sizeof(lengths) / sizeof(lengths[0]);
	struct side side;

	side_open(&side, rank, NULL);
	struct fid_mr *mr = side_expose(&side, memory, sizeof(memory), REMOTE_BOTH, KEY);
	barrier(&side);
	for (size_t i = 0; i < count; i++) {
		if (rank == 0) {
			fill(buffer, lengths[i], i);
			POST(&side, fi_writedata(side.endpoint, buffer, lengths[i], NULL, UINT64_MAX - i,
						 side.peer[1], i, KEY, &side));
			expect_completion(&side, &side, WRITTEN);
		} else {
			fi_addr_t source = 0;
			struct fi_cq_tagged_entry entry = next_completion_from(side.received, &source);
			SAME(entry.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
			SAME(entry.data, UINT64_MAX - i);
			SAME(source, side.peer[0]);
			CHECK_FILLED(memory + i, lengths[i], i);
		}
		barrier(&side);
	}
	if (rank == 0) {
		fill(buffer, 300, 77);
		POST(&side, fi_inject_writedata(side.endpoint, buffer, 300, 5, side.peer[1], 0, KEY));
		memset(buffer, 0, 300);
		expect_nothing(&side, side.sent);
		struct iovec piece = {buffer, 8};
		struct fi_rma_iov range = {1000, 8, KEY};
		struct fi_msg_rma message = {.msg_iov = &piece,
					     .iov_count = 1,
					     .addr = side.peer[1],
					     .rma_iov = &range,
					     .rma_iov_count = 1,
					     .data = 6};
		POST(&side, fi_writemsg(side.endpoint, &message, FI_REMOTE_CQ_DATA | FI_INJECT));
		expect_completion(&side, NULL, WRITTEN);
	} else {
		SAME(next_completion(side.received).data, 5);
		CHECK_FILLED(memory, 300, 77);
		SAME(next_completion(side.received).data, 6);
	}
	barrier(&side);
	SAME(fi_close(&mr->fid), 0);
	side_close(&side);
}

/* Injected bytes may be changed at once. Operations that ask for completions get them. */
static void selective(int rank)
{
	struct side side;

	side_open(&side, rank, &(struct side_options){.send_bind = FI_SELECTIVE_COMPLETION});
	struct fid_mr *mr = side_expose(&side, memory, sizeof(memory), REMOTE_BOTH, KEY);
	barrier(&side);
	if (rank == 0) {
		size_t most = side.info->tx_attr->inject_size;
		for (size_t length = 0; length <= most; length += most / 8) {
			fill(buffer, length, length);
			POST(&side,
			     fi_inject_write(side.endpoint, buffer, length, side.peer[1], length * 8, KEY));
			memset(buffer, 0, length);
		}
		SAME(fi_inject_write(side.endpoint, buffer, most + 1, side.peer[1], 0, KEY), -FI_EINVAL);
		POST(&side, fi_write(side.endpoint, buffer, 8, NULL, side.peer[1], 100000, KEY, NULL));
		for (size_t length = 0; length <= most; length += most / 8) {
			struct iovec piece = {again, length};
			struct fi_rma_iov range = {length * 8, length, KEY};
			struct fi_msg_rma message = {.msg_iov = &piece,
						     .iov_count = 1,
						     .addr = side.peer[1],
						     .rma_iov = &range,
						     .rma_iov_count = 1,
						     .context = &range};
			POST(&side, fi_readmsg(side.endpoint, &message, FI_COMPLETION));
			expect_completion(&side, &range, READ);
			CHECK_FILLED(again, length, length);
			uint64_t level[] = {FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE};
			POST(&side, fi_writemsg(side.endpoint, &message, FI_COMPLETION | level[length % 3]));
			expect_completion(&side, &range, WRITTEN);
		}
		POST(&side, fi_read(side.endpoint, again, 8, NULL, side.peer[1], 0, KEY, NULL));
		expect_nothing(&side, side.sent);
	}
	barrier(&side);
	SAME(fi_close(&mr->fid), 0);
	side_close(&side);
}

/* Each operation counts once on each side, however long it is. A refused operation counts as an error. */
static void counters(int rank)
{
	static const size_t lengths[] = {8, 400, 4000, 40000, 400000};
	struct side side;
	struct fid_cntr *counter[COUNTED];
	struct fid_cntr *of_memory = NULL;

	side_open_counting(&side, rank, &(struct side_options){0}, counter);
	SAME(fi_cntr_open(side.domain, NULL, &of_memory, NULL), 0);
	struct fid_mr *mr = side_expose(&side, memory, sizeof(memory), REMOTE_BOTH, KEY);
	SAME(fi_mr_bind(mr, &of_memory->fid, FI_REMOTE_WRITE), 0);
	SAME(fi_close(&of_memory->fid), -FI_EBUSY);
	barrier(&side);
	if (rank == 0) {
		for (size_t i = 0; i < 5; i++) {
			POST(&side,
			     fi_write(side.endpoint, buffer, lengths[i], NULL, side.peer[1], 0, KEY, NULL));
			POST(&side,
			     fi_read(side.endpoint, again, lengths[i], NULL, side.peer[1], 0, KEY, NULL));
		}
		POST(&side, fi_inject_write(side.endpoint, buffer, 8, side.peer[1], 0, KEY));
		SAME(fi_cntr_wait(counter[COUNT_READ], 5, -1), 0);
		SAME(fi_cntr_wait(counter[COUNT_WRITE], 6, -1), 0);
		POST(&side, fi_write(side.endpoint, buffer, 8, NULL, side.peer[1], 0, 99, NULL));
		SAME(fi_cntr_wait(counter[COUNT_WRITE], 7, -1), -FI_EAVAIL);
		SAME(fi_cntr_readerr(counter[COUNT_WRITE]), 1);
		POST(&side, fi_read(side.endpoint, again, 8, NULL, side.peer[1], 0, 99, NULL));
		SAME(fi_cntr_wait(counter[COUNT_READ], 6, -1), -FI_EAVAIL);
		SAME(fi_cntr_read(counter[COUNT_READ]), 5);
		SAME(fi_cntr_read(counter[COUNT_WRITE]), 6);
	} else {
		SAME(fi_cntr_wait(counter[COUNT_REMOTE_READ], 5, -1), 0);
		SAME(fi_cntr_wait(counter[COUNT_REMOTE_WRITE], 6, -1), 0);
		SAME(fi_cntr_wait(of_memory, 6, -1), 0);
	}
	barrier(&side);
	SAME(fi_cntr_read(counter[COUNT_REMOTE_READ]), rank == 0 ? 0 : 5);
	SAME(fi_cntr_read(counter[COUNT_REMOTE_WRITE]), rank == 0 ? 0 : 6);
	SAME(fi_cntr_read(of_memory), rank == 0 ? 0 : 6);
	barrier(&side);
	SAME(fi_close(&mr->fid), 0);
	SAME(fi_close(&of_memory->fid), 0);
	side_close_counting(&side, counter);
}

/* Short reads and writes of the same memory are carried out in the order of the calls. */
static void ordered(int rank)
{
	static const size_t lengths[] = {8, 48, 400, 4096};
	struct side side;
	uint64_t state = 5;

	side_open(&side, rank, &(struct side_options){.send_bind = FI_SELECTIVE_COMPLETION});
	struct fid_mr *mr = side_expose(&side, memory, sizeof(memory), REMOTE_BOTH, KEY);
	barrier(&side);
	for (uint64_t round = 0; round < 600 && rank == 0; round++) {
		size_t length = lengths[next_random(&state) % 4];
		struct iovec piece = {again, length};
		struct fi_rma_iov range = {0, length, KEY};
		struct fi_msg_rma message = {.msg_iov = &piece,
					     .iov_count = 1,
					     .addr = side.peer[1],
					     .rma_iov = &range,
					     .rma_iov_count = 1};
		/* A read between two writes sees the first. */
		fill(buffer, length, round);
		fill(buffer + 8192, length, round + 1000);
		POST(&side, fi_write(side.endpoint, buffer, length, NULL, side.peer[1], 0, KEY, NULL));
		POST(&side, fi_readmsg(side.endpoint, &message, FI_COMPLETION));
		POST(&side, fi_write(side.endpoint, buffer + 8192, length, NULL, side.peer[1], 0, KEY, NULL));
		expect_completion(&side, NULL, READ);
		CHECK_FILLED(again, length, round);
		if (round % 50 != 0)
			continue;
		/* A fenced read sees long writes before it. */
		fill(buffer, 300000, round);
		POST(&side, fi_write(side.endpoint, buffer, 300000, NULL, side.peer[1], 0, KEY, NULL));
		piece.iov_len = range.len = 300000;
		POST(&side, fi_readmsg(side.endpoint, &message, FI_COMPLETION | FI_FENCE));
		expect_completion(&side, NULL, READ);
		CHECK_FILLED(again, 300000, round);
	}
	barrier(&side);
	SAME(fi_close(&mr->fid), 0);
	side_close(&side);
}

/* All at once, in both directions, with messages between: nothing is lost, and no rank waits for ever. */
static void crowd(int rank)
{
	enum { OPERATIONS = 400, SLICE = 2048 };
	static unsigned char results[OPERATIONS][SLICE];
	struct side side;
	int peer = (rank + 1) % ranks();
	int done = 0;
	int received = 0;

	side_open(&side, rank, NULL);
	fill(memory, sizeof(memory), (uint64_t)rank);
	struct fid_mr *mr = side_expose(&side, memory, sizeof(memory), REMOTE_BOTH, KEY);
	for (int i = 0; i < OPERATIONS; i++)
		SAME(fi_trecv(side.endpoint, NULL, 0, NULL, FI_ADDR_UNSPEC, (uint64_t)i, 0, NULL), 0);
	barrier(&side);
	for (int i = 0; i < OPERATIONS; i++) {
		size_t length = i % 37 == 0 ? 100000 : (size_t)i % SLICE;
		void *to = i % 37 == 0 ? (void *)again : (void *)results[i];
		POST(&side, fi_read(side.endpoint, to, length, NULL, side.peer[peer], 0, KEY, NULL));
		POST(&side,
		     fi_write(side.endpoint, memory, length, NULL, side.peer[peer], 500000, KEY, NULL));
		POST(&side, fi_tsend(side.endpoint, NULL, 0, NULL, side.peer[peer], (uint64_t)i, NULL));
	}
	while (done < 3 * OPERATIONS || received < OPERATIONS) {
		struct fi_cq_tagged_entry entry = {0};
		ssize_t result = fi_cq_read(side.sent, &entry, 1);
		CHECK(result == 1 || result == -FI_EAGAIN);
		done += result == 1;
		result = fi_cq_read(side.received, &entry, 1);
		CHECK(result == 1 || result == -FI_EAGAIN);
		received += result == 1;
	}
	for (int i = 0; i < OPERATIONS; i++)
		if (i % 37 != 0)
			CHECK_FILLED(results[i], (size_t)i % SLICE, (uint64_t)peer);
	CHECK_FILLED(again, 100000, (uint64_t)peer);
	barrier(&side);
	CHECK_FILLED(memory + 500000, (OPERATIONS - 1) % SLICE, (uint64_t)((rank + ranks() - 1) % ranks()));
	SAME(fi_close(&mr->fid), 0);
	side_close(&side);
}

/* Delivery complete for all: counted operations are in the target's memory. */
static void delivered(int rank)
{
	struct side side;
	struct fid_cntr *counter[COUNTED];

	side_open_counting(&side, rank, &(struct side_options){.transmit_flags = FI_DELIVERY_COMPLETE},
			   counter);
	_Atomic uint64_t *shared = shared_word(8);
	struct fid_mr *mr = side_expose(&side, (void *)(uintptr_t)shared, 8, REMOTE_BOTH, KEY);
	barrier(&side);
	for (uint64_t i = 1; i <= 2000 && rank == 0; i++) {
		POST(&side, fi_inject_write(side.endpoint, &i, 8, side.peer[1], 0, KEY));
		SAME(fi_cntr_wait(counter[COUNT_WRITE], i, -1), 0);
		SAME(atomic_load(shared), i);
	}
	barrier(&side);
	SAME(fi_close(&mr->fid), 0);
	side_close_counting(&side, counter);
}

/* A target that makes no progress: operations without room are refused, and of the others nothing is lost. */
static void no_room(int rank)
{
	enum { MOST = 4096, BUFFERS = 32 };
	static const size_t sizes[] = {8, 3000};
	struct side side;

	side_open(&side, rank, NULL);
	struct fid_mr *mr = side_expose(&side, memory, sizeof(memory), REMOTE_BOTH, KEY);
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		size_t size = sizes[s];
		uint64_t begun = 0;
		barrier(NULL);
		for (; rank == 0; begun++) {
			CHECK(begun < MOST);
			fill(buffer, size, begun);
			/* Such a short write has left its buffer, complete or not. */
			ssize_t result = begun % 4 == 3
						 ? fi_read(side.endpoint, again, size, NULL, side.peer[1], 0,
							   KEY, NULL)
						 : fi_write(side.endpoint, buffer, size, NULL, side.peer[1],
							    begun % BUFFERS * 3000, KEY, NULL);
			if (result == -FI_EAGAIN)
				break;
			SAME(result, 0);
		}
		barrier(NULL);
		for (uint64_t i = 0; i < begun; i++)
			expect_completion(&side, NULL, i % 4 == 3 ? READ : WRITTEN);
		if (rank == 0) {
			CHECK(begun > 10);
			*shared_word(8) = begun;
		}
		barrier(&side);
		begun = *shared_word(8);
		for (uint64_t i = begun > BUFFERS ? begun - BUFFERS : 0; i < begun && rank == 1; i++)
			if (i % 4 != 3)
				CHECK_FILLED(memory + i % BUFFERS * 3000, size, i);
		barrier(&side);
	}
	SAME(fi_close(&mr->fid), 0);
	side_close(&side);
}

const struct scenario rma_scenarios[] = {
	{"sizes", 2, sizes},
	{"sizes_at_addresses", 2, sizes_at_addresses},
	{"own_memory", 1, own_memory},
	{"pieces", 2, pieces},
	{"data", 2, data},
	{"selective", 2, selective},
	{"counters", 2, counters},
	{"ordered", 2, ordered},
	{"crowd", 2, crowd},
	{"crowd_of_four", 4, crowd},
	{"crowd_alone", 1, crowd},
	{"delivered", 2, delivered},
	{"no_room", 2, no_room},
	{0},
};
