/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_refused.c - invalid reads and writes: each returns its error, and the next valid one works. */
#include <limits.h>
#include <stdlib.h>

#include "harness.h"

#define KEY 4711

static unsigned char memory[EDGE_SIZE_MAX];
static unsigned char buffer[EDGE_SIZE_MAX];
static unsigned char again[EDGE_SIZE_MAX];

/* Operations that the target refuses end in an error, and the next one works. */
static void errors(int rank)
{
	static const size_t lengths[] = {8, 300, 3000, 50000, 500000};
	struct side side;

	side_open(&side, rank, NULL);
	struct fid_mr *mr = side_expose(&side, memory, 600000, REMOTE_BOTH, KEY);
	struct fid_mr *others[2] = {0};
	SAME(fi_mr_reg(side.domain, memory, 600000, FI_REMOTE_READ, 0, 1, 0, &others[0], NULL), 0);
	SAME(fi_mr_reg(side.domain, memory, 600000, FI_REMOTE_WRITE, 0, 2, 0, &others[1], NULL), 0);
	memset(memory, 0xaa, sizeof(memory));
	barrier(&side);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]) && rank == 0; i++) {
		const struct {
			uint64_t address;
			uint64_t key;
			int error;
			bool read;
		} cases[] = {
			{0, 99, FI_EKEYREJECTED, false},
			{0, 99, FI_EKEYREJECTED, true},
			{0, UINT64_MAX, FI_EKEYREJECTED, true},
			{600000 - lengths[i] + 1, KEY, FI_EACCES, false},
			{600000 - lengths[i] + 1, KEY, FI_EACCES, true},
			{UINT64_MAX - lengths[i], KEY, FI_EACCES, false},
			{UINT64_MAX - lengths[i], KEY, FI_EACCES, true},
			{UINT64_C(1) << 63, KEY, FI_EACCES, true},
			{0, 1, FI_EACCES, false},
			{0, 2, FI_EACCES, true},
		};
		for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
			if (cases[k].read)
				POST(&side,
				     fi_read(side.endpoint, again, lengths[i], NULL, side.peer[1],
					     cases[k].address, cases[k].key, (void *)(uintptr_t)&cases[k]));
			else
				POST(&side,
				     fi_write(side.endpoint, buffer, lengths[i], NULL, side.peer[1],
					      cases[k].address, cases[k].key, (void *)(uintptr_t)&cases[k]));
			/* A refused operation does not affect the next one. */
			POST(&side, fi_read(side.endpoint, again, 1, NULL, side.peer[1], 599999, KEY, &side));
			struct fi_cq_tagged_entry entry = {0};
			int good = 0;
			for (int left = 2; left > 0; left--) {
				ssize_t result = 0;
				while ((result = fi_cq_read(side.sent, &entry, 1)) == -FI_EAGAIN)
					;
				if (result == 1) {
					CHECK(entry.op_context == &side);
					good++;
				} else {
					expect_error(&side, &cases[k], cases[k].error);
				}
			}
			SAME(good, 1);
		}
		/* An operation that was complete already has no context to be named by. */
		POST(&side, fi_inject_write(side.endpoint, buffer, 8, side.peer[1], 0, 99));
		expect_error(&side, NULL, FI_EKEYREJECTED);
	}
	if (rank == 0) {
		struct iovec piece[5] = {{buffer, 8}};
		struct fi_rma_iov range[5] = {{0, 9, KEY}};
		struct fi_msg_rma message = {.msg_iov = piece,
					     .iov_count = 1,
					     .addr = side.peer[1],
					     .rma_iov = range,
					     .rma_iov_count = 1};
		SAME(fi_writemsg(side.endpoint, &message, 0), -FI_EINVAL);
		SAME(fi_readmsg(side.endpoint, &message, 0), -FI_EINVAL);
		range[0].len = 8;
		range[0].addr = UINT64_MAX - 7;
		SAME(fi_writemsg(side.endpoint, &message, 0), -FI_EINVAL);
		SAME(fi_readmsg(side.endpoint, &message, 0), -FI_EINVAL);
		range[0].addr = 0;
		message.rma_iov_count = 5;
		SAME(fi_writemsg(side.endpoint, &message, 0), -FI_EINVAL);
		message.rma_iov_count = 0;
		SAME(fi_writemsg(side.endpoint, &message, 0), -FI_EINVAL);
		message.rma_iov_count = 1;
		message.iov_count = 5;
		SAME(fi_readmsg(side.endpoint, &message, 0), -FI_EINVAL);
		SAME(fi_read(side.endpoint, again, 1, NULL, 1000, 0, KEY, NULL), -FI_EHOSTUNREACH);
	}
	barrier(&side);
	for (size_t i = 0; i < sizeof(memory); i++)
		SAME(memory[i], 0xaa);
	SAME(fi_close(&mr->fid), 0);
	SAME(fi_close(&others[0]->fid), 0);
	SAME(fi_close(&others[1]->fid), 0);
	side_close(&side);
}

/* Lengths that no message can have. */
static void lengths(int rank)
{
	static const size_t bad[] = {(size_t)SSIZE_MAX + 1, SIZE_MAX - 8, SIZE_MAX};
	struct side side;

	side_open(&side, rank, NULL);
	struct fid_mr *mr = side_expose(&side, memory, 64, REMOTE_BOTH, KEY);
	struct fid_ep *ep = side.endpoint;
	fi_addr_t to = side.peer[0];
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct iovec pieces[2] = {{buffer, 20}, {buffer, bad[i] - 10}};
		struct fi_rma_iov range = {0, bad[i] + 10, KEY};
		struct fi_msg_rma message = {
			.msg_iov = pieces, .iov_count = 2, .addr = to, .rma_iov = &range, .rma_iov_count = 1};
		SAME(fi_write(ep, buffer, bad[i], NULL, to, 0, KEY, NULL), -FI_EMSGSIZE);
		SAME(fi_writedata(ep, buffer, bad[i], NULL, 1, to, 0, KEY, NULL), -FI_EMSGSIZE);
		SAME(fi_inject_write(ep, buffer, bad[i], to, 0, KEY), -FI_EMSGSIZE);
		SAME(fi_inject_writedata(ep, buffer, bad[i], 1, to, 0, KEY), -FI_EMSGSIZE);
		SAME(fi_read(ep, buffer, bad[i], NULL, to, 0, KEY, NULL), -FI_EMSGSIZE);
		SAME(fi_writev(ep, pieces, NULL, 2, to, 0, KEY, NULL), -FI_EMSGSIZE);
		SAME(fi_readv(ep, pieces, NULL, 2, to, 0, KEY, NULL), -FI_EMSGSIZE);
		SAME(fi_writemsg(ep, &message, 0), -FI_EMSGSIZE);
		SAME(fi_readmsg(ep, &message, 0), -FI_EMSGSIZE);
		POST(&side, fi_write(ep, buffer, 8, NULL, to, 0, KEY, &side));
		expect_completion(&side, &side, WRITTEN);
	}
	SAME(fi_close(&mr->fid), 0);
	side_close(&side);
}

/* Flags: hints are accepted. Flags that are not offered and would change the meaning are refused. */
static void flags(int rank)
{
	static const uint64_t refused[] = {REFUSED_FLAGS, FI_MATCH_COMPLETE};
	static const uint64_t taken[] = {TAKEN_FLAGS};
	struct side side;
	struct iovec piece = {buffer, 8};
	struct fi_rma_iov range = {0, 8, KEY};

	side_open(&side, rank, NULL);
	struct fid_mr *mr = side_expose(&side, memory, 64, REMOTE_BOTH, KEY);
	struct fi_msg_rma message = {.msg_iov = &piece,
				     .iov_count = 1,
				     .addr = side.peer[0],
				     .rma_iov = &range,
				     .rma_iov_count = 1,
				     .context = &range};
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		SAME(fi_writemsg(side.endpoint, &message, refused[i]), -FI_EBADFLAGS);
		SAME(fi_readmsg(side.endpoint, &message, refused[i]), -FI_EBADFLAGS);
	}
	expect_nothing(&side, side.sent);
	for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
		fill(buffer, 8, i);
		POST(&side, fi_writemsg(side.endpoint, &message, taken[i]));
		expect_completion(&side, &range, WRITTEN);
		memset(buffer, 0, 8);
		POST(&side, fi_readmsg(side.endpoint, &message, taken[i]));
		expect_completion(&side, &range, READ);
		CHECK_FILLED(buffer, 8, i);
	}
	SAME(fi_close(&mr->fid), 0);
	side_close(&side);
}

/*
 * Memory that is deregistered before an operation gets there: the operation is refused, and everything goes
 * on.
 */
static void closed(int rank)
{
	struct side side;

	side_open(&side, rank, NULL);
	struct fid_mr *mr = side_expose(&side, memory, sizeof(memory), REMOTE_BOTH, KEY);
	barrier(&side);
	if (rank == 0) {
		POST(&side,
		     fi_write(side.endpoint, buffer, EDGE_SIZE_MAX, NULL, side.peer[1], 0, KEY, &side));
		POST(&side, fi_read(side.endpoint, again, EDGE_SIZE_MAX, NULL, side.peer[1], 0, KEY, &side));
		POST(&side, fi_write(side.endpoint, buffer, 8, NULL, side.peer[1], 0, KEY, &side));
	}
	barrier(NULL); /* the target makes no progress until here */
	SAME(fi_close(&mr->fid), 0);
	for (int i = 0; i < 3 && rank == 0; i++)
		expect_error(&side, &side, FI_EKEYREJECTED);
	barrier(&side);
	mr = side_expose(&side, memory, sizeof(memory), REMOTE_BOTH, KEY);
	barrier(&side);
	if (rank == 0) {
		POST(&side, fi_write(side.endpoint, buffer, EDGE_SIZE_MAX, NULL, side.peer[1], 0, KEY, NULL));
		expect_completion(&side, NULL, WRITTEN);
	}
	barrier(&side);
	SAME(fi_close(&mr->fid), 0);
	side_close(&side);
}

/* An endpoint without the capability refuses. */
static void without(int rank)
{
	struct side side;

	side_open(&side, rank, &(struct side_options){.caps = FI_TAGGED});
	SAME(fi_write(side.endpoint, buffer, 8, NULL, side.peer[0], 0, KEY, NULL), -FI_EOPNOTSUPP);
	SAME(fi_read(side.endpoint, buffer, 8, NULL, side.peer[0], 0, KEY, NULL), -FI_EOPNOTSUPP);
	side_close(&side);
	side_prepare(&side, rank, &(struct side_options){0});
	struct fid_ep *endpoint = side_endpoint(&side, &(struct side_options){0});
	SAME(fi_write(endpoint, buffer, 8, NULL, 0, 0, KEY, NULL), -FI_EOPBADSTATE);
	SAME(fi_close(&endpoint->fid), 0);
	side_close(&side);
}

const struct scenario rma_refused_scenarios[] = {
	{"errors", 2, errors}, {"lengths", 1, lengths}, {"flags", 1, flags},
	{"closed", 2, closed}, {"without", 1, without}, {0},
};
