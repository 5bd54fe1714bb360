/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * beyond.c - one-sided operations of ranks that share no region, as on different hosts. The core moves the
 * bytes of long operations, beside short ones, and while the memory is deregistered.
 */
#include <stdlib.h>
#include <unistd.h>

#include "harness.h"

#define KEY 4711
#define BYTES ((size_t)3 << 20)
#define LONG_BYTES ((size_t)1 << 20)
/* This many operations at once, each to its own part. */
#define MANY 20U
#define PART_BYTES (BYTES / MANY)

static unsigned char memory[BYTES];
static unsigned char buffer[BYTES];
static unsigned char again[BYTES];

/* Each rank has a region of its own that no other rank knows. */
static void leave_region(void)
{
	SAME(unsetenv("VICINAL_REGION"), 0);
	SAME(setenv("FI_PROVIDER", "vicinal", 1), 0); /* then it is offered without a region */
}

static void wait_exactly(struct fid_cntr *counter, uint64_t value)
{
	SAME(fi_cntr_wait(counter, value, 20000), 0);
	SAME(fi_cntr_read(counter), value);
}

/*
 * Every length around a protocol's limits, with data: completions, counters of both sides and of the memory,
 * and bytes.
 */
static void lengths(int rank)
{
	static const size_t sizes[] = {8,      4096,   4097,           65536,     131072,
				       131073, 262145, LONG_BYTES + 1, BYTES - 64};
	const uint64_t count = sizeof(sizes) / sizeof(sizes[0]);
	struct fid_cntr *counters[COUNTED];
	struct fid_cntr *written = NULL;
	struct side side;

	leave_region();
	side_open_counting(&side, rank, &(struct side_options){.mr_mode = FI_MR_ENDPOINT}, counters);
	SAME(fi_cntr_open(side.domain, NULL, &written, NULL), 0);
	struct fid_mr *mr = NULL;
	SAME(fi_mr_reg(side.domain, memory, sizeof(memory), REMOTE_BOTH, 0, KEY, FI_RMA_EVENT, &mr, NULL), 0);
	SAME(fi_mr_bind(mr, &written->fid, FI_REMOTE_WRITE), 0);
	SAME(fi_mr_bind(mr, &side.endpoint->fid, 0), 0);
	SAME(fi_mr_enable(mr), 0);
	barrier(&side);
	for (size_t i = 0; i < count && rank == 0; i++) {
		fill(buffer, sizes[i], i);
		POST(&side, fi_writedata(side.endpoint, buffer, sizes[i], NULL, 1000 + i, side.peer[1], i,
					 KEY, buffer));
		expect_completion(&side, buffer, WRITTEN);
		memset(again, 0xee, sizes[i] + 1);
		POST(&side, fi_read(side.endpoint, again, sizes[i], NULL, side.peer[1], i, KEY, again));
		expect_completion(&side, again, READ);
		CHECK_FILLED(again, sizes[i], i);
		SAME(again[sizes[i]], 0xee);
	}
	for (size_t i = 0; i < count && rank == 1; i++) {
		struct fi_cq_tagged_entry told = next_completion(side.received);
		SAME(told.data, 1000 + i);
		SAME(told.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
	}
	wait_exactly(counters[rank == 0 ? COUNT_WRITE : COUNT_REMOTE_WRITE], count);
	wait_exactly(counters[rank == 0 ? COUNT_READ : COUNT_REMOTE_READ], count);
	if (rank == 1)
		wait_exactly(written, count);
	barrier(&side);
	SAME(fi_close(&mr->fid), 0);
	side_close_endpoints(&side);
	SAME(fi_close(&written->fid), 0);
	side_close_counting(&side, counters);
}

/*
 * Both ranks write all parts of the other's memory and read them back, all at once, with short operations and
 * messages between. Fenced operations come after all of it.
 */
static void many(int rank)
{
	struct side side;
	int other = 1 - rank;
	uint64_t word = 0;
	uint64_t got = 0;

	leave_region();
	side_open(&side, rank, NULL);
	struct fid_mr *mr = side_expose(&side, memory, sizeof(memory), REMOTE_BOTH, KEY);
	SAME(fi_trecv(side.endpoint, &got, sizeof(got), NULL, side.peer[other], 1, 0, NULL), 0);
	barrier(&side);
	for (uint64_t part = 0; part < MANY; part++) {
		size_t offset = part * PART_BYTES;
		fill(buffer + offset, PART_BYTES, 100 * (uint64_t)rank + part);
		POST(&side, fi_write(side.endpoint, buffer + offset, PART_BYTES, NULL, side.peer[other],
				     offset, KEY, NULL));
	}
	struct iovec piece = {&word, sizeof(word)};
	struct fi_msg_tagged message = {
		.msg_iov = &piece, .iov_count = 1, .addr = side.peer[other], .tag = 1, .context = &word};
	word = (uint64_t)rank + 7;
	POST(&side, fi_tsendmsg(side.endpoint, &message, FI_FENCE));
	for (uint64_t part = 0; part <= MANY; part++)
		(void)next_completion(side.sent);
	(void)next_completion(side.received);
	SAME(got, other + 7);
	for (uint64_t part = 0; part < MANY; part++)
		CHECK_FILLED(memory + part * PART_BYTES, PART_BYTES, 100 * (uint64_t)other + part);
	for (uint64_t part = 0; part < MANY; part++) {
		size_t offset = part * PART_BYTES;
		POST(&side, fi_read(side.endpoint, again + offset, PART_BYTES, NULL, side.peer[other], offset,
				    KEY, NULL));
	}
	for (uint64_t part = 0; part < MANY; part++)
		expect_completion(&side, NULL, READ);
	SAME(memcmp(again, buffer, sizeof(again)), 0);
	barrier(&side);
	SAME(fi_close(&mr->fid), 0);
	side_close(&side);
}

/* Memory that is not registered, or not for this access: an error, and everything goes on. */
static void refused(int rank)
{
	struct side side;

	leave_region();
	side_open(&side, rank, NULL);
	struct fid_mr *mr = side_expose(&side, memory, LONG_BYTES, FI_REMOTE_READ, KEY);
	barrier(&side);
	if (rank == 0) {
		fi_addr_t to = side.peer[1];
		POST(&side, fi_write(side.endpoint, buffer, LONG_BYTES, NULL, to, 0, KEY, buffer));
		expect_error(&side, buffer, FI_EACCES);
		POST(&side, fi_read(side.endpoint, buffer, LONG_BYTES, NULL, to, 1, KEY, buffer));
		expect_error(&side, buffer, FI_EACCES);
		POST(&side, fi_read(side.endpoint, buffer, LONG_BYTES, NULL, to, 0, KEY + 1, buffer));
		expect_error(&side, buffer, FI_EKEYREJECTED);
		POST(&side, fi_read(side.endpoint, buffer, LONG_BYTES, NULL, to, 0, KEY, buffer));
		expect_completion(&side, buffer, READ);
	}
	barrier(&side);
	SAME(fi_close(&mr->fid), 0);
	side_close(&side);
}

/* Make progress for a while, so that operations which the other rank began reach us. */
static void progress_a_while(const struct side *side)
{
	for (int i = 0; i < 200; i++) {
		side_progress(side);
		(void)usleep(500);
	}
}

/*
 * A peer's write is in progress, and the peer makes no progress. The memory stays registered until the write
 * has ended, because the core cannot be stopped.
 */
static void closed_while_written(int rank)
{
	struct side side;

	leave_region();
	side_open(&side, rank, NULL);
	struct fid_mr *mr = side_expose(&side, memory, sizeof(memory), REMOTE_BOTH, KEY);
	barrier(&side);
	if (rank == 0) {
		/* The ranks are connected. */
		POST(&side, fi_write(side.endpoint, buffer, 8, NULL, side.peer[1], 0, KEY, NULL));
		expect_completion(&side, NULL, WRITTEN);
		fill(buffer, BYTES, 3);
		POST(&side, fi_write(side.endpoint, buffer, BYTES, NULL, side.peer[1], 0, KEY, NULL));
		barrier(NULL); /* and no progress until the other has tried */
		barrier(NULL);
		expect_completion(&side, NULL, WRITTEN);
		barrier(&side);
		SAME(fi_close(&mr->fid), 0);
	} else {
		while (memory[0] != 0)
			side_progress(&side);
		progress_a_while(&side);
		barrier(NULL);
		progress_a_while(&side);
		SAME(fi_close(&mr->fid), -FI_EBUSY);
		barrier(NULL);
		barrier(&side);
		CHECK_FILLED(memory, BYTES, 3);
		SAME(fi_close(&mr->fid), 0);
	}
	barrier(&side);
	side_close(&side);
}

/* A peer may read the memory, and does not: the peer loses its connection, and the memory is ours again. */
static void closed_while_read(int rank)
{
	struct side side;

	leave_region();
	side_open(&side, rank, NULL);
	struct fid_mr *mr = side_expose(&side, memory, sizeof(memory), REMOTE_BOTH, KEY);
	barrier(&side);
	if (rank == 0) {
		POST(&side, fi_read(side.endpoint, buffer, 8, NULL, side.peer[1], 0, KEY, NULL));
		expect_completion(&side, NULL, READ);
		POST(&side, fi_read(side.endpoint, buffer, BYTES, NULL, side.peer[1], 0, KEY, buffer));
		barrier(NULL);
		barrier(NULL);
		struct fi_cq_err_entry error = next_error(side.sent);
		CHECK(error.op_context == buffer && error.err > 0);
	} else {
		progress_a_while(&side);
		barrier(NULL);
		progress_a_while(&side);
		SAME(fi_close(&mr->fid), 0);
		memset(memory, 0, sizeof(memory));
		barrier(NULL);
		mr = NULL;
	}
	if (mr != NULL)
		SAME(fi_close(&mr->fid), 0);
	barrier(&side);
	side_close(&side);
}

const struct scenario beyond_scenarios[] = {
	{"lengths", 2, lengths},
	{"many", 2, many},
	{"refused", 2, refused},
	{"closed_while_written", 2, closed_while_written},
	{"closed_while_read", 2, closed_while_read},
	{0},
};
