/* SPDX-License-Identifier: BSD-3-Clause */
/* atomic.c - atomics on another rank's memory: every datatype, operation and call. */
#include <stdatomic.h>
#include <stdlib.h>

#include "harness.h"

#define KEY 4711
#define DATATYPES (FI_UINT128 + 1)
#define OPERATIONS FI_ATOMIC_OP_LAST
#define ELEMENT_MAX 32

enum form { BASE, FETCH, COMPARE };

static _Alignas(64) unsigned char memory[16384];
static _Alignas(64) unsigned char operands[16384];
static _Alignas(64) unsigned char compares[16384];
static _Alignas(64) unsigned char results[16384];

/* ---- expected results, computed in another way, with small numbers that all types have ---- */

static const size_t element_bytes[DATATYPES] = {
	[FI_INT8] = 1,
	[FI_UINT8] = 1,
	[FI_INT16] = 2,
	[FI_UINT16] = 2,
	[FI_INT32] = 4,
	[FI_UINT32] = 4,
	[FI_INT64] = 8,
	[FI_UINT64] = 8,
	[FI_FLOAT] = 4,
	[FI_DOUBLE] = 8,
	[FI_FLOAT_COMPLEX] = 8,
	[FI_DOUBLE_COMPLEX] = 16,
	[FI_LONG_DOUBLE] = sizeof(long double),
	[FI_LONG_DOUBLE_COMPLEX] = 2 * sizeof(long double),
	[FI_INT128] = 16,
	[FI_UINT128] = 16,
};

static void put(int datatype, void *element, long long number)
{
	float float_number = (float)number;
	double double_number = (double)number;
	long double long_number = number;
	int64_t wide[2] = {number, number < 0 ? -1 : 0};

	memset(element, 0, element_bytes[datatype]);
	if (datatype == FI_FLOAT || datatype == FI_FLOAT_COMPLEX)
		memcpy(element, &float_number, sizeof(float_number));
	else if (datatype == FI_DOUBLE || datatype == FI_DOUBLE_COMPLEX)
		memcpy(element, &double_number, sizeof(double_number));
	else if (datatype == FI_LONG_DOUBLE || datatype == FI_LONG_DOUBLE_COMPLEX)
		memcpy(element, &long_number, sizeof(long_number));
	else
		memcpy(element, wide, element_bytes[datatype]);
}

static long long get(int datatype, const void *element)
{
	float float_number = 0;
	double double_number = 0;
	long double long_number = 0;
	int64_t wide = 0;

	if (datatype == FI_FLOAT || datatype == FI_FLOAT_COMPLEX) {
		memcpy(&float_number, element, sizeof(float_number));
		return (long long)float_number;
	}
	if (datatype == FI_DOUBLE || datatype == FI_DOUBLE_COMPLEX) {
		memcpy(&double_number, element, sizeof(double_number));
		return (long long)double_number;
	}
	if (datatype == FI_LONG_DOUBLE || datatype == FI_LONG_DOUBLE_COMPLEX) {
		memcpy(&long_number, element, sizeof(long_number));
		return (long long)long_number;
	}
	memcpy(&wide, element, element_bytes[datatype] < 8 ? element_bytes[datatype] : 8);
	return wide;
}

static long long expected(int operation, long long x, long long y, long long c)
{
	switch (operation) {
	case FI_MIN:
		return x < y ? x : y;
	case FI_MAX:
		return x > y ? x : y;
	case FI_SUM:
		return x + y;
	case FI_PROD:
		return x * y;
	case FI_LOR:
		return x != 0 || y != 0;
	case FI_LAND:
		return x != 0 && y != 0;
	case FI_BOR:
		return x | y;
	case FI_BAND:
		return x & y;
	case FI_LXOR:
		return (x != 0) ^ (y != 0);
	case FI_BXOR:
		return x ^ y;
	case FI_ATOMIC_READ:
		return x;
	case FI_ATOMIC_WRITE:
		return y;
	case FI_CSWAP:
		return c == x ? y : x;
	case FI_CSWAP_NE:
		return c != x ? y : x;
	case FI_CSWAP_LE:
		return c <= x ? y : x;
	case FI_CSWAP_LT:
		return c < x ? y : x;
	case FI_CSWAP_GE:
		return c >= x ? y : x;
	case FI_CSWAP_GT:
		return c > x ? y : x;
	default: /* FI_MSWAP */
		return (y & c) | (x & ~c);
	}
}

/*
 * The valid operations of each form by fi_atomic(3): complex numbers have no order, and only integers have
 * bits.
 */
static bool there_is(int datatype, int operation, enum form form)
{
	bool complex_number = datatype == FI_FLOAT_COMPLEX || datatype == FI_DOUBLE_COMPLEX ||
			      datatype == FI_LONG_DOUBLE_COMPLEX;
	bool integer = datatype <= FI_UINT64 || datatype == FI_INT128 || datatype == FI_UINT128;
	bool bits =
		operation == FI_BOR || operation == FI_BAND || operation == FI_BXOR || operation == FI_MSWAP;
	bool order = operation == FI_MIN || operation == FI_MAX ||
		     (operation >= FI_CSWAP_LE && operation <= FI_CSWAP_GT);

	if ((bits && !integer) || (order && complex_number))
		return false;
	if (form == COMPARE)
		return operation >= FI_CSWAP && operation <= FI_MSWAP;
	return operation < FI_CSWAP && (operation != FI_ATOMIC_READ || form == FETCH);
}

static void valid(int rank)
{
	struct side side;
	static const uint64_t flags[] = {0, FI_FETCH_ATOMIC, FI_COMPARE_ATOMIC};

	side_open(&side, rank, NULL);
	for (int datatype = 0; datatype < DATATYPES + 5; datatype++)
		for (int operation = 0; operation < OPERATIONS; operation++) {
			size_t counts[3] = {0};
			int answers[3] = {
				fi_atomicvalid(side.endpoint, datatype, operation, &counts[BASE]),
				fi_fetch_atomicvalid(side.endpoint, datatype, operation, &counts[FETCH]),
				fi_compare_atomicvalid(side.endpoint, datatype, operation, &counts[COMPARE]),
			};
			for (int form = BASE; form <= COMPARE; form++) {
				struct fi_atomic_attr attributes = {0};
				bool there = datatype < DATATYPES && there_is(datatype, operation, form);
				SAME(answers[form], there ? 0 : -FI_EOPNOTSUPP);
				SAME(fi_query_atomic(side.domain, datatype, operation, &attributes,
						     flags[form]),
				     answers[form]);
				if (!there)
					continue;
				SAME(attributes.size, element_bytes[datatype]);
				SAME(attributes.count, counts[form]);
				CHECK(counts[form] >= 64);
			}
		}
	struct fi_atomic_attr attributes = {0};
	SAME(fi_query_atomic(side.domain, FI_INT32, FI_SUM, &attributes, FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC),
	     -FI_EINVAL);
	SAME(fi_query_atomic(side.domain, FI_INT32, FI_SUM, &attributes, FI_TAGGED), -FI_EOPNOTSUPP);
	side_close(&side);
}

/* Begin one operation on `count` elements with the plain call of its form. Its context is the form's. */
static void begin(const struct side *side, int datatype, int operation, enum form form, size_t count)
{
	fi_addr_t peer = side->peer[ranks() - 1];

	switch (form) {
	case BASE:
		POST(side, fi_atomic(side->endpoint, operands, count, NULL, peer, 0, KEY, datatype, operation,
				     operands));
		break;
	case FETCH:
		POST(side,
		     fi_fetch_atomic(side->endpoint, operation == FI_ATOMIC_READ ? NULL : operands, count,
				     NULL, results, NULL, peer, 0, KEY, datatype, operation, results));
		break;
	case COMPARE:
		POST(side, fi_compare_atomic(side->endpoint, operands, count, NULL, compares, NULL, results,
					     NULL, peer, 0, KEY, datatype, operation, compares));
		break;
	}
}

static void check_one(const struct side *side, int datatype, int operation, enum form form, size_t count)
{
	static unsigned char after[16384];
	static const void *const contexts[] = {operands, results, compares};
	fi_addr_t peer = side->peer[ranks() - 1];
	size_t size = element_bytes[datatype];
	uint64_t state = (uint64_t)datatype * 100 + (uint64_t)operation;

	for (size_t i = 0; i < count; i++) {
		put(datatype, memory + i * size, (long long)(next_random(&state) % 6));
		put(datatype, operands + i * size, (long long)(next_random(&state) % 6));
		put(datatype, compares + i * size, (long long)(next_random(&state) % 6));
	}
	memset(results, 0xee, sizeof(results));
	/*
	 * Make the target's memory equal to ours first. The three operations are carried out in this order.
	 */
	POST(side, fi_write(side->endpoint, memory, count * size, NULL, peer, 0, KEY, memory));
	begin(side, datatype, operation, form, count);
	POST(side, fi_read(side->endpoint, after, count * size, NULL, peer, 0, KEY, after));
	expect_completion(side, memory, WRITTEN);
	expect_completion(side, contexts[form], form == BASE ? CHANGED : FETCHED);
	expect_completion(side, after, READ);
	for (size_t i = 0; i < count; i++) {
		long long x = get(datatype, memory + i * size);
		long long wanted = expected(operation, x, get(datatype, operands + i * size),
					    get(datatype, compares + i * size));
		SAME(get(datatype, after + i * size), wanted);
		if (form != BASE)
			SAME(get(datatype, results + i * size), x);
	}
	SAME(results[form == BASE ? 0 : count * size], 0xee);
}

/* Every valid combination, with few elements and with the maximum. */
static void arithmetic(int rank)
{
	static _Alignas(64) unsigned char target[16384];
	struct side side;

	side_open(&side, rank, NULL);
	struct fid_mr *mr = side_expose(&side, target, sizeof(target), REMOTE_BOTH, KEY);
	barrier(&side);
	for (int datatype = 0; datatype < DATATYPES && rank == 0; datatype++)
		for (int operation = 0; operation < OPERATIONS; operation++)
			for (int form = BASE; form <= COMPARE; form++) {
				if (!there_is(datatype, operation, form))
					continue;
				check_one(&side, datatype, operation, form, 1);
				check_one(&side, datatype, operation, form, 7);
				check_one(&side, datatype, operation, form, 4096 / element_bytes[datatype]);
			}
	barrier(&side);
	SAME(fi_close(&mr->fid), 0);
	side_close(&side);
}

/* The calls with lists, with flags and without. */
static void calls(int rank)
{
	static _Alignas(64) int64_t target[1000];
	int64_t *numbers = (int64_t *)(void *)operands;
	int64_t *before = (int64_t *)(void *)results;
	int64_t *others = (int64_t *)(void *)compares;
	struct side side;

	side_open(&side, rank, &(struct side_options){.send_bind = FI_SELECTIVE_COMPLETION});
	struct fid_mr *mr = side_expose(&side, target, sizeof(target), REMOTE_BOTH, KEY);
	barrier(&side);
	for (size_t elements = 4; elements <= 512 && rank == 0; elements *= 2) {
		size_t half = elements / 2;
		struct fi_ioc one[4] = {{numbers, 1}, {numbers + 1, half}, {numbers + 1 + half, half - 1}};
		struct fi_ioc fetched[4] = {{before, half - 1}, {before + half - 1, half + 1}};
		struct fi_ioc compared[4] = {{others, elements}};
		struct fi_rma_ioc ranges[4] = {{800, half, KEY}, {0, half, KEY}};
		struct fi_msg_atomic message = {
			.msg_iov = one,
			.iov_count = 3,
			.addr = side.peer[1],
			.rma_iov = ranges,
			.rma_iov_count = 2,
			.datatype = FI_INT64,
			.op = FI_ATOMIC_WRITE,
			.context = &message,
		};
		if (elements * 8 > 800 * 2)
			ranges[0].addr = 4000;
		for (size_t i = 0; i < elements; i++)
			numbers[i] = (int64_t)(i + elements);
		POST(&side, fi_atomicmsg(side.endpoint, &message, FI_COMPLETION));
		expect_completion(&side, &message, CHANGED);
		message.op = FI_SUM;
		POST(&side, fi_atomicmsg(side.endpoint, &message, FI_DELIVERY_COMPLETE));
		POST(&side, fi_fetch_atomicmsg(side.endpoint, &message, fetched, NULL, 2, FI_COMPLETION));
		expect_completion(&side, &message, FETCHED);
		for (size_t i = 0; i < elements; i++) {
			SAME(before[i], 2 * numbers[i]);
			others[i] = i % 2 == 0 ? 3 * numbers[i] : 0;
		}
		message.op = FI_CSWAP;
		POST(&side, fi_compare_atomicmsg(side.endpoint, &message, compared, NULL, 1, fetched, NULL, 2,
						 FI_COMPLETION | FI_FENCE));
		expect_completion(&side, &message, FETCHED);
		for (size_t i = 0; i < elements; i++)
			SAME(before[i], 3 * numbers[i]);
		message.op = FI_ATOMIC_READ;
		POST(&side, fi_fetch_atomicmsg(side.endpoint, &message, fetched, NULL, 2, FI_COMPLETION));
		expect_completion(&side, &message, FETCHED);
		for (size_t i = 0; i < elements; i++)
			SAME(before[i], i % 2 == 0 ? numbers[i] : 3 * numbers[i]);
	}
	if (rank == 0) {
		struct fi_ioc one[2] = {{numbers, 1}, {numbers + 1, 2}};
		struct fi_ioc fetched[2] = {{before, 2}, {before + 2, 1}};
		numbers[0] = 5;
		numbers[1] = 6;
		numbers[2] = 7;
		POST(&side, fi_inject_atomic(side.endpoint, numbers, 3, side.peer[1], 0, KEY, FI_INT64,
					     FI_ATOMIC_WRITE));
		POST(&side,
		     fi_atomicv(side.endpoint, one, NULL, 2, side.peer[1], 0, KEY, FI_INT64, FI_SUM, NULL));
		POST(&side, fi_fetch_atomicv(side.endpoint, one, NULL, 2, fetched, NULL, 2, side.peer[1], 0,
					     KEY, FI_INT64, FI_SUM, NULL));
		POST(&side, fi_compare_atomicv(side.endpoint, one, NULL, 2, one, NULL, 2, fetched, NULL, 2,
					       side.peer[1], 0, KEY, FI_INT64, FI_CSWAP_NE, NULL));
		/* Answers come in order: with the answer to the next operation, all have come. */
		struct fi_ioc last = {operands + 4096, 1};
		struct fi_rma_ioc range = {1000, 1, KEY};
		struct fi_msg_atomic message = {.addr = side.peer[1],
						.rma_iov = &range,
						.rma_iov_count = 1,
						.datatype = FI_INT64,
						.op = FI_ATOMIC_READ,
						.context = &last};
		POST(&side, fi_fetch_atomicmsg(side.endpoint, &message, &last, NULL, 1, FI_COMPLETION));
		expect_completion(&side, &last, FETCHED);
		expect_nothing(&side, side.sent);
		for (int i = 0; i < 3; i++)
			SAME(before[i], 3 * (5 + i));
	}
	barrier(&side);
	if (rank == 1)
		for (int i = 0; i < 3; i++)
			SAME(target[i], 5 + i);
	SAME(fi_close(&mr->fid), 0);
	side_close(&side);
}

/* All ranks add at once. Each former value is seen once. The owner adds, too. */
static void contention(int rank)
{
	enum { TIMES = 500 };
	_Atomic uint64_t *sum = shared_word(8);
	struct side side;
	uint64_t one = 1;
	uint64_t before = 0;
	uint64_t last = 0;

	side_open(&side, rank, NULL);
	struct fid_mr *mr = side_expose(&side, (void *)(uintptr_t)sum, 8, REMOTE_BOTH, KEY);
	barrier(&side);
	for (int i = 0; i < TIMES; i++) {
		if (rank == 0)
			atomic_fetch_add(sum, 1);
		POST(&side, fi_fetch_atomic(side.endpoint, &one, 1, NULL, &before, NULL, side.peer[0], 0, KEY,
					    FI_UINT64, FI_SUM, NULL));
		expect_completion(&side, NULL, FETCHED);
		CHECK(i == 0 || before > last);
		last = before;
	}
	barrier(&side);
	SAME(atomic_load(sum), (uint64_t)TIMES * (uint64_t)(ranks() + 1));
	SAME(fi_close(&mr->fid), 0);
	side_close(&side);
}

/* Base atomics count as writes; atomics that return something count as reads. */
static void counters(int rank)
{
	static _Alignas(64) int64_t target[600];
	struct side side;
	struct fid_cntr *counter[COUNTED];

	side_open_counting(&side, rank, &(struct side_options){0}, counter);
	struct fid_mr *mr = side_expose(&side, target, sizeof(target), REMOTE_BOTH, KEY);
	barrier(&side);
	if (rank == 0) {
		for (size_t count = 1; count <= 512; count *= 8) {
			POST(&side, fi_atomic(side.endpoint, operands, count, NULL, side.peer[1], 0, KEY,
					      FI_INT64, FI_SUM, NULL));
			POST(&side, fi_fetch_atomic(side.endpoint, operands, count, NULL, results, NULL,
						    side.peer[1], 0, KEY, FI_INT64, FI_SUM, NULL));
		}
		SAME(fi_cntr_wait(counter[COUNT_READ], 4, -1), 0);
		SAME(fi_cntr_wait(counter[COUNT_WRITE], 4, -1), 0);
	} else {
		SAME(fi_cntr_wait(counter[COUNT_REMOTE_READ], 4, -1), 0);
		SAME(fi_cntr_wait(counter[COUNT_REMOTE_WRITE], 4, -1), 0);
	}
	barrier(&side);
	SAME(fi_close(&mr->fid), 0);
	side_close_counting(&side, counter);
}

const struct scenario atomic_scenarios[] = {
	{"valid", 1, valid},
	{"arithmetic", 2, arithmetic},
	{"arithmetic_alone", 1, arithmetic},
	{"calls", 2, calls},
	{"contention", 2, contention},
	{"contention_of_four", 4, contention},
	{"counters", 2, counters},
	{0},
};
