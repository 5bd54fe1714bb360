/* SPDX-License-Identifier: BSD-3-Clause */
/* atomic_refused.c - invalid atomics: each returns its error, and the next valid one works. */
#include <stdlib.h>

#include "harness.h"

#define KEY 4711

static _Alignas(64) unsigned char operands[16384];
static _Alignas(64) unsigned char compares[16384];
static _Alignas(64) unsigned char results[16384];

static void errors(int rank)
{
	static _Alignas(64) unsigned char target[8192];
	struct side side;
	struct fid_mr *others[2];

	side_open(&side, rank, NULL);
	struct fid_mr *mr = side_expose(&side, target, sizeof(target), REMOTE_BOTH, KEY);
	SAME(fi_mr_reg(side.domain, target, 64, FI_REMOTE_READ, 0, 1, 0, &others[0], NULL), 0);
	SAME(fi_mr_reg(side.domain, target, 64, FI_REMOTE_WRITE, 0, 2, 0, &others[1], NULL), 0);
	barrier(&side);
	if (rank == 0) {
		fi_addr_t peer = side.peer[1];
		struct fid_ep *ep = side.endpoint;
#define ADD(count, address, key, type) \
	fi_atomic(ep, operands, count, NULL, peer, address, key, type, FI_SUM, NULL)
#define FETCH_ADD(count, address, key) \
	fi_fetch_atomic(ep, operands, count, NULL, results, NULL, peer, address, key, FI_INT64, FI_SUM, NULL)
#define FETCH_READ(address, key) \
	fi_fetch_atomic(ep, NULL, 1, NULL, results, NULL, peer, address, key, FI_INT64, FI_ATOMIC_READ, NULL)
#define SWAP(address, key) \
	fi_compare_atomic(ep, operands, 1, NULL, compares, NULL, results, NULL, peer, address, key, \
			  FI_INT64, FI_CSWAP, NULL)
		POST(&side, ADD(1, 0, 99, FI_INT64));
		expect_error(&side, NULL, FI_EKEYREJECTED);
		POST(&side, FETCH_ADD(1, 0, 99));
		expect_error(&side, NULL, FI_EKEYREJECTED);
		POST(&side, FETCH_ADD(512, 0, 99));
		expect_error(&side, NULL, FI_EKEYREJECTED);
		POST(&side, SWAP(0, 99));
		expect_error(&side, NULL, FI_EKEYREJECTED);
		POST(&side, ADD(1, 8192, KEY, FI_INT64));
		expect_error(&side, NULL, FI_EACCES);
		POST(&side, ADD(2, 8184, KEY, FI_INT64));
		expect_error(&side, NULL, FI_EACCES);
		POST(&side, ADD(1, UINT64_MAX - 7, KEY, FI_INT64));
		expect_error(&side, NULL, FI_EACCES);
		POST(&side, ADD(1, 4, KEY, FI_INT64));
		expect_error(&side, NULL, FI_EINVAL);
		POST(&side, ADD(1, 2, KEY, FI_FLOAT));
		expect_error(&side, NULL, FI_EINVAL);
		POST(&side, SWAP(1, KEY));
		expect_error(&side, NULL, FI_EINVAL);
		/*
		 * Fetching needs read access, changing needs write access, and fetching with a change needs
		 * both.
		 */
		POST(&side, ADD(1, 0, 1, FI_INT64));
		expect_error(&side, NULL, FI_EACCES);
		POST(&side, FETCH_ADD(1, 0, 1));
		expect_error(&side, NULL, FI_EACCES);
		POST(&side, FETCH_ADD(1, 0, 2));
		expect_error(&side, NULL, FI_EACCES);
		POST(&side, FETCH_READ(0, 2));
		expect_error(&side, NULL, FI_EACCES);
		POST(&side, SWAP(0, 2));
		expect_error(&side, NULL, FI_EACCES);
		POST(&side, FETCH_READ(0, 1));
		expect_completion(&side, NULL, FETCHED);
		POST(&side, ADD(1, 0, 2, FI_INT64));
		expect_completion(&side, NULL, CHANGED);
		/* Errors that this side already finds. */
		SAME(ADD(513, 0, KEY, FI_INT64), -FI_EMSGSIZE);
		SAME(ADD(SIZE_MAX, 0, KEY, FI_INT64), -FI_EMSGSIZE);
		SAME(ADD(0, 0, KEY, FI_INT64), -FI_EINVAL);
		SAME(ADD(1, 0, KEY, 100), -FI_EOPNOTSUPP);
		SAME(fi_atomic(ep, operands, 1, NULL, peer, 0, KEY, FI_INT64, FI_CSWAP, NULL),
		     -FI_EOPNOTSUPP);
		SAME(fi_atomic(ep, operands, 1, NULL, peer, 0, KEY, FI_INT64, FI_ATOMIC_READ, NULL),
		     -FI_EOPNOTSUPP);
		SAME(fi_atomic(ep, operands, 1, NULL, peer, 0, KEY, FI_DOUBLE, FI_BOR, NULL), -FI_EOPNOTSUPP);
		SAME(fi_atomic(ep, operands, 1, NULL, peer, 0, KEY, FI_INT64, 1000, NULL), -FI_EOPNOTSUPP);
		SAME(fi_inject_atomic(ep, operands, 513, peer, 0, KEY, FI_INT64, FI_SUM), -FI_EMSGSIZE);
		SAME(fi_atomic(ep, operands, 1, NULL, 1000, 0, KEY, FI_INT64, FI_SUM, NULL),
		     -FI_EHOSTUNREACH);
		struct fi_ioc two[2] = {{results, 1}, {results + 8, 1}};
		struct fi_ioc three[2] = {{operands, 1}, {operands + 8, 2}};
		SAME(fi_fetch_atomicv(ep, three, NULL, 2, two, NULL, 2, peer, 0, KEY, FI_INT64, FI_SUM, NULL),
		     -FI_EINVAL);
		/* Lists that are too long, that are missing, and that do not fit each other. */
		struct fi_ioc many[5] = {
			{results, 1}, {results, 1}, {results, 1}, {results, 1}, {results, 1}};
		SAME(fi_atomicv(ep, many, NULL, 5, peer, 0, KEY, FI_INT64, FI_SUM, NULL), -FI_EINVAL);
		SAME(fi_atomicv(ep, many, NULL, 0, peer, 0, KEY, FI_INT64, FI_SUM, NULL), -FI_EINVAL);
		SAME(fi_compare_atomicv(ep, many, NULL, 2, many, NULL, 3, many, NULL, 2, peer, 0, KEY,
					FI_INT64, FI_CSWAP, NULL),
		     -FI_EINVAL);
		SAME(fi_compare_atomicv(ep, many, NULL, 2, many, NULL, 2, many, NULL, 1, peer, 0, KEY,
					FI_INT64, FI_CSWAP, NULL),
		     -FI_EINVAL);
		many[1].count = SIZE_MAX;
		SAME(fi_atomicv(ep, many, NULL, 2, peer, 0, KEY, FI_INT64, FI_SUM, NULL), -FI_EMSGSIZE);
		struct fi_rma_ioc ranges[5] = {
			{0, 1, KEY}, {0, 1, KEY}, {0, 1, KEY}, {0, 1, KEY}, {0, 1, KEY}};
		struct fi_msg_atomic message = {.msg_iov = many,
						.iov_count = 1,
						.addr = peer,
						.rma_iov = ranges,
						.datatype = FI_INT64,
						.op = FI_SUM};
		SAME(fi_atomicmsg(ep, &message, 0), -FI_EINVAL);
		message.rma_iov_count = 5;
		SAME(fi_atomicmsg(ep, &message, 0), -FI_EINVAL);
		message.rma_iov_count = 2;
		SAME(fi_atomicmsg(ep, &message, 0), -FI_EINVAL);
		message.rma_iov_count = 1;
		ranges[0].count = SIZE_MAX;
		SAME(fi_atomicmsg(ep, &message, 0), -FI_EMSGSIZE);
		ranges[0].count = 1;
		static const uint64_t flags[] = {REFUSED_FLAGS, FI_MATCH_COMPLETE, FI_TAGGED};
		for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
			SAME(fi_atomicmsg(ep, &message, flags[i]), -FI_EBADFLAGS);
			SAME(fi_fetch_atomicmsg(ep, &message, many, NULL, 1, flags[i]), -FI_EBADFLAGS);
			SAME(fi_compare_atomicmsg(ep, &message, many, NULL, 1, many, NULL, 1, flags[i]),
			     -FI_EBADFLAGS);
		}
		expect_nothing(&side, side.sent);
		/* The next operation works. */
		POST(&side, FETCH_ADD(1, 0, KEY));
		expect_completion(&side, NULL, FETCHED);
	}
	barrier(&side);
	SAME(fi_close(&mr->fid), 0);
	SAME(fi_close(&others[0]->fid), 0);
	SAME(fi_close(&others[1]->fid), 0);
	side_close(&side);
}

/* An endpoint without the capability, or not enabled, refuses. */
static void without(int rank)
{
	struct side side;

	side_open(&side, rank, &(struct side_options){.caps = FI_TAGGED | FI_RMA});
	SAME(fi_atomic(side.endpoint, operands, 1, NULL, side.peer[0], 0, KEY, FI_INT64, FI_SUM, NULL),
	     -FI_EOPNOTSUPP);
	side_close(&side);
	side_prepare(&side, rank, &(struct side_options){0});
	struct fid_ep *endpoint = side_endpoint(&side, &(struct side_options){0});
	SAME(fi_atomic(endpoint, operands, 1, NULL, 0, 0, KEY, FI_INT64, FI_SUM, NULL), -FI_EOPBADSTATE);
	SAME(fi_close(&endpoint->fid), 0);
	side_close(&side);
}

const struct scenario atomic_refused_scenarios[] = {
	{"errors", 2, errors},
	{"without", 1, without},
	{0},
};
