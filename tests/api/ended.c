/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ended.c - a process that ends without telling its peers: operations with it end in error, and the others go
 * on.
 */
#include "waiting.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { LARGE = 1 << 20 };

static unsigned char large[LARGE];

static void without_a_word(int rank)
{
	struct side side;
	char word = 0;
	char any = 0;

	side_open(&side, rank, NULL);
	if (rank == 1) {
		POST(&side, fi_inject(side.endpoint, "x", 1, side.peer[0]));
		/* It has taken the messages so far, and no receive is posted for the rest. */
		while (atomic_load(shared_word(0)) == 0)
			side_progress(&side);
		_exit(0);
	}
	if (rank == 2) {
		while (atomic_load(shared_word(1)) == 0)
			side_progress(&side);
		POST(&side, fi_tinject(side.endpoint, "y", 1, side.peer[0], 9));
		while (atomic_load(shared_word(2)) == 0)
			side_progress(&side);
		side_close(&side);
		return;
	}
	SAME(fi_recv(side.endpoint, &word, 1, NULL, side.peer[1], NULL), 0);
	SAME(next_completion(side.received).len, 1);
	SAME(fi_recv(side.endpoint, &word, 1, NULL, side.peer[1], &word), 0);
	SAME(fi_trecv(side.endpoint, &any, 1, NULL, FI_ADDR_UNSPEC, 9, 0, &any), 0);
	POST(&side, fi_tsend(side.endpoint, large, LARGE, NULL, side.peer[1], 7, large));
	atomic_store(shared_word(0), 1);
	struct fi_cq_err_entry error = next_error(side.received);
	CHECK(error.op_context == &word);
	SAME(error.err, FI_ECONNRESET);
	expect_error(&side, large, FI_ECONNRESET);
	CHECK(fi_tinject(side.endpoint, "x", 1, side.peer[1], 7) < 0);
	/* Messages from any other rank still arrive. */
	atomic_store(shared_word(1), 1);
	CHECK(next_completion(side.received).op_context == &any && any == 'y');
	atomic_store(shared_word(2), 1); /* a barrier counts ranks that are gone */
	side_close(&side);
}

const struct scenario ended_scenarios[] = {
	{"without_a_word", 3, without_a_word},
	{0},
};
