/* SPDX-License-Identifier: BSD-3-Clause */
/* several.c - several endpoints with one queue and one vector, several domains, and oneself as a peer. */
#include "harness.h"

#include <stdlib.h>

static unsigned char buffer[3][300000];

/* Every endpoint sends to every endpoint. Their completions are in one queue. */
static void shared_queue(int rank)
{
	static const size_t sizes[] = {24, 3000, 300000};
	struct side side;

	side_open(&side, rank, &(struct side_options){.endpoints = 3});
	for (size_t s = 0; s < 3; s++)
		for (int from = 0; from < 3; from++)
			for (int to = 0; to < 3; to++) {
				uint64_t tag = s << 8 | (uint64_t)from << 4 | (uint64_t)to;
				fi_addr_t source = 0;
				if (rank == 0) {
					fill(buffer[0], sizes[s], tag);
					POST(&side, fi_tsend(side.endpoints[from], buffer[0], sizes[s], NULL,
							     side.peers[1][to], tag, buffer));
					CHECK(next_completion(side.sent).op_context == buffer);
					continue;
				}
				SAME(fi_trecv(side.endpoints[to], buffer[1], sizes[s], NULL, FI_ADDR_UNSPEC,
					      tag, 0, buffer),
				     0);
				struct fi_cq_tagged_entry entry =
					next_completion_from(side.received, &source);
				SAME(entry.tag, tag);
				SAME(entry.len, sizes[s]);
				SAME(source, side.peers[0][from]);
				CHECK_FILLED(buffer[1], sizes[s], tag);
			}
	/* A message for one endpoint is not received by another. */
	if (rank == 0) {
		POST(&side, fi_tinject(side.endpoints[0], "x", 1, side.peers[1][2], 99));
		barrier(&side);
	} else {
		SAME(fi_trecv(side.endpoints[1], buffer[1], 1, NULL, FI_ADDR_UNSPEC, 99, 0, &side), 0);
		barrier(&side);
		expect_nothing(&side, side.received);
		SAME(fi_cancel(&side.endpoints[1]->fid, &side), 0);
		SAME(next_error(side.received).err, FI_ECANCELED);
		SAME(fi_trecv(side.endpoints[2], buffer[1], 1, NULL, FI_ADDR_UNSPEC, 99, 0, &side), 0);
		CHECK(next_completion(side.received).op_context == &side);
	}
	barrier(&side);
	side_close(&side);
}

/* Completions in a queue can be read after their endpoint is closed. */
static void left_in_queue(int rank)
{
	struct side side;
	fi_addr_t source = 0;

	side_open(&side, rank, &(struct side_options){.endpoints = 2});
	for (int i = 0; i < 2; i++) {
		SAME(fi_trecv(side.endpoints[i], buffer[i], 8, NULL, FI_ADDR_UNSPEC, 1, 0, buffer[i]), 0);
		POST(&side, fi_tinject(side.endpoints[1 - i], "12345678", 8, side.peers[0][i], 1));
	}
	side_progress(&side);
	side_progress(&side);
	side_close_endpoints(&side);
	for (int i = 0; i < 2; i++) {
		struct fi_cq_tagged_entry entry;
		SAME(fi_cq_readfrom(side.received, &entry, 1, &source), 1);
		SAME(entry.len, 8);
	}
	SAME(fi_cq_readfrom(side.received, buffer, 1, &source), -FI_EAGAIN);
	side_close(&side);
}

/*
 * Two endpoints share a queue, and each has its own vector. The vector of the receiving endpoint names the
 * sender, even after the other endpoint was closed.
 */
static void two_vectors(int rank)
{
	struct side side;
	struct fid_av *vectors[2] = {NULL};
	unsigned char names[2][NAME_MAX_BYTES];
	fi_addr_t known[3] = {0};
	fi_addr_t source = 0;

	side_prepare(&side, rank, &(struct side_options){0});
	vectors[0] = side.av;
	SAME(fi_av_open(side.domain, &(struct fi_av_attr){.type = FI_AV_TABLE}, &vectors[1], NULL), 0);
	for (int i = 0; i < 2; i++) {
		size_t length = NAME_MAX_BYTES;
		side.av = vectors[i];
		side.endpoints[i] = side_endpoint(&side, &(struct side_options){0});
		SAME(fi_enable(side.endpoints[i]), 0);
		SAME(fi_getname(&side.endpoints[i]->fid, names[i], &length), 0);
	}
	/* The first endpoint's vector has both. The second endpoint's has only itself, as its first entry. */
	for (int i = 0; i < 2; i++)
		SAME(fi_av_insert(vectors[0], names[i], 1, &known[i], 0, NULL), 1);
	SAME(fi_av_insert(vectors[1], names[1], 1, &known[2], 0, NULL), 1);
	CHECK(known[0] == 0 && known[1] == 1 && known[2] == 0);
	const struct {
		int from;
		int to;
		fi_addr_t destination;
		fi_addr_t source;
	} messages[] = {{0, 0, 0, 0}, {0, 1, 1, FI_ADDR_NOTAVAIL}, {1, 1, 0, 0}};
	for (size_t i = 0; i < 4; i++) {
		int k = i < 3 ? (int)i : 2;
		SAME(fi_trecv(side.endpoints[messages[k].to], buffer[0], 8, NULL, FI_ADDR_UNSPEC, 1, 0, NULL),
		     0);
		POST(&side, fi_tinject(side.endpoints[messages[k].from], "x", 1, messages[k].destination, 1));
		if (i == 3) {
			while (fi_cq_read(side.received, NULL, 0) != 0)
				;
			SAME(fi_close(&side.endpoints[0]->fid), 0);
		}
		(void)next_completion_from(side.received, &source);
		SAME(source, messages[k].source);
	}
	SAME(fi_close(&side.endpoints[1]->fid), 0);
	SAME(fi_close(&vectors[0]->fid), 0);
	side_close(&side); /* closes the second vector */
}

/* One endpoint of several leaves, and another takes its place. The rest goes on. */
static void come_and_go(int rank)
{
	struct side side;

	side_open(&side, rank, &(struct side_options){.endpoints = 2});
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 2; i++) {
			SAME(fi_trecv(side.endpoints[i], buffer[i], 3000, NULL, side.peers[1 - rank][i], 5, 0,
				      buffer[i]),
			     0);
			fill(buffer[2], 3000, (uint64_t)round);
			POST(&side, fi_tsend(side.endpoints[i], buffer[2], 3000, NULL,
					     side.peers[1 - rank][i], 5, NULL));
			(void)next_completion(side.sent);
		}
		for (int i = 0; i < 2; i++)
			SAME(next_completion(side.received).len, 3000);
		for (int i = 0; i < 2; i++)
			CHECK_FILLED(buffer[i], 3000, (uint64_t)round);
		barrier(&side);
		SAME(fi_close(&side.endpoints[1]->fid), 0);
		side.endpoints[1] = side_endpoint(&side, &(struct side_options){0});
		SAME(fi_enable(side.endpoints[1]), 0);
		exchange_names(&side);
	}
	side_close(&side);
}

/* Two fabrics and domains in one process, which exchange messages. */
static void two_domains(int rank)
{
	struct side sides[2];
	unsigned char name[NAME_MAX_BYTES];
	size_t length = sizeof(name);
	fi_addr_t second = 0;

	side_open(&sides[0], rank, NULL);
	side_open(&sides[1], rank, NULL);
	SAME(fi_getname(&sides[1].endpoint->fid, name, &length), 0);
	SAME(fi_av_insert(sides[0].av, name, 1, &second, 0, NULL), 1);
	fill(buffer[0], 2000, 1);
	SAME(fi_recv(sides[1].endpoint, buffer[1], 2000, NULL, FI_ADDR_UNSPEC, NULL), 0);
	POST(&sides[0], fi_send(sides[0].endpoint, buffer[0], 2000, NULL, second, NULL));
	SAME(next_completion(sides[1].received).len, 2000);
	CHECK_FILLED(buffer[1], 2000, 1);
	/* Each exchanges messages with the other process, too. */
	for (int i = 0; i < 2; i++) {
		SAME(fi_recv(sides[i].endpoint, buffer[1], 2000, NULL, sides[i].peer[1 - rank], NULL), 0);
		POST(&sides[i], fi_inject(sides[i].endpoint, "x", 1, sides[i].peer[1 - rank]));
		SAME(next_completion(sides[i].received).len, 1);
	}
	barrier(&sides[0]);
	side_close(&sides[1]);
	barrier(&sides[0]);
	side_close(&sides[0]);
}

/* Oneself is a peer like any other, over all sizes, before and after the receive. */
static void oneself(int rank)
{
	struct side side;

	side_open(&side, rank, NULL);
	for (uint64_t i = 0; i < edge_size_count; i++)
		for (int expected = 0; expected < 2; expected++) {
			static unsigned char in[EDGE_SIZE_MAX];
			static unsigned char out[EDGE_SIZE_MAX];
			size_t length = edge_sizes[i];
			fill(out, length, i);
			memset(in, 0, length);
			if (expected)
				SAME(fi_trecv(side.endpoint, in, length, NULL, side.peer[0], i, 0, in), 0);
			POST(&side, fi_tsend(side.endpoint, out, length, NULL, side.peer[0], i, out));
			if (!expected)
				SAME(fi_trecv(side.endpoint, in, length, NULL, side.peer[0], i, 0, in), 0);
			struct fi_cq_tagged_entry entry = next_completion(side.received);
			CHECK(entry.op_context == in && entry.len == length);
			CHECK(next_completion(side.sent).op_context == out);
			CHECK_FILLED(in, length, i);
		}
	side_close(&side);
}

const struct scenario several_scenarios[] = {
	{"shared_queue", 2, shared_queue},
	{"left_in_queue", 1, left_in_queue},
	{"two_vectors", 1, two_vectors},
	{"come_and_go", 2, come_and_go},
	{"two_domains", 2, two_domains},
	{"oneself", 1, oneself},
	{0},
};
