/* SPDX-License-Identifier: BSD-3-Clause */
/* complete.c - completion queues: formats, choice of completions, delivery, errors, waiting. */
#include "waiting.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static const size_t sizes[] = {0, 24, 300, 3000, 50000, 400000};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define ROOM 400000

static unsigned char buffer[ROOM];

/* Entries of each format are adjacent; later members are not written. */
static void formats(int rank)
{
	static const struct {
		enum fi_cq_format format;
		size_t bytes;
	} all[] = {
		{FI_CQ_FORMAT_CONTEXT, sizeof(struct fi_cq_entry)},
		{FI_CQ_FORMAT_MSG, sizeof(struct fi_cq_msg_entry)},
		{FI_CQ_FORMAT_DATA, sizeof(struct fi_cq_data_entry)},
		{FI_CQ_FORMAT_TAGGED, sizeof(struct fi_cq_tagged_entry)},
	};

	for (size_t f = 0; f < 4; f++) {
		struct side side;
		char contexts[3];
		side_open(&side, rank, &(struct side_options){.format = all[f].format});
		if (rank == 0) {
			for (uint64_t i = 0; i < 3; i++)
				POST(&side, fi_tinjectdata(side.endpoint, "abc", i + 1, i + 100, side.peer[1],
							   i + 200));
			barrier(&side);
			side_close(&side);
			continue;
		}
		for (size_t i = 0; i < 3; i++)
			SAME(fi_trecv(side.endpoint, buffer + 10 * i, 3, NULL, FI_ADDR_UNSPEC, i + 200, 0,
				      &contexts[i]),
			     0);
		unsigned char entries[4 * sizeof(struct fi_cq_tagged_entry)];
		memset(entries, 0x5a, sizeof(entries));
		fi_addr_t sources[4];
		size_t got = 0;
		while (got < 3) {
			ssize_t result =
				fi_cq_readfrom(side.received, entries + got * all[f].bytes, 4 - got, sources);
			if (result == -FI_EAGAIN)
				continue;
			CHECK(result > 0);
			for (ssize_t i = 0; i < result; i++)
				SAME(sources[i], side.peer[0]);
			got += (size_t)result;
		}
		for (size_t i = 0; i < 3; i++) {
			struct fi_cq_tagged_entry entry;
			memcpy(&entry, entries + i * all[f].bytes, all[f].bytes);
			CHECK(entry.op_context == &contexts[i]);
			if (f >= 1) {
				SAME(entry.flags, FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA);
				SAME(entry.len, i + 1);
			}
			if (f >= 2)
				SAME(entry.data, i + 100);
			if (f >= 3)
				SAME(entry.tag, i + 200);
		}
		for (size_t i = 3 * all[f].bytes; i < sizeof(entries); i++)
			SAME(entries[i], 0x5a);
		barrier(&side);
		side_close(&side);
	}
}

/* Many more completions than the requested size: none is lost. */
static void beyond_size(int rank)
{
	static uint64_t values[5000];
	struct side side;

	side_open(&side, rank, &(struct side_options){.queue_size = 4});
	if (rank == 0) {
		for (uint64_t i = 0; i < 5000; i++) { /* its own until it completes: it may wait for rank 1 */
			values[i] = i;
			POST(&side, fi_tsend(side.endpoint, &values[i], 8, NULL, side.peer[1], i, &side));
		}
		for (uint64_t i = 0; i < 5000; i++)
			SAME(next_completion(side.sent).flags, FI_SEND | FI_TAGGED);
	} else {
		for (uint64_t i = 0; i < 5000; i++)
			SAME(fi_trecv(side.endpoint, &values[i], 8, NULL, side.peer[0], i, 0, &values[i]), 0);
		for (uint64_t i = 0; i < 5000; i++) {
			struct fi_cq_tagged_entry entry = next_completion(side.received);
			CHECK(entry.op_context == &values[i]);
			SAME(values[i], i);
		}
	}
	barrier(&side);
	side_close(&side);
}

/* Completions chosen by a flag of the call, or of the endpoint. */
static void selective(int rank)
{
	struct side side;
	struct iovec piece = {buffer, 8};
	char contexts[2];

	for (int round = 0; round < 2; round++) {
		uint64_t flags = round == 0 ? 0 : FI_COMPLETION;
		side_open(&side, rank,
			  &(struct side_options){.send_bind = FI_SELECTIVE_COMPLETION,
						 .receive_bind = FI_SELECTIVE_COMPLETION,
						 .transmit_flags = flags,
						 .receive_flags = flags});
		/* Calls without flags use the endpoint's flags; calls with flags use only those. */
		if (rank == 0) {
			struct fi_msg message = {.msg_iov = &piece,
						 .iov_count = 1,
						 .addr = side.peer[1],
						 .context = &contexts[1]};
			barrier(&side);
			POST(&side, fi_send(side.endpoint, buffer, 8, NULL, side.peer[1], &contexts[0]));
			if (round == 1)
				CHECK(next_completion(side.sent).op_context == &contexts[0]);
			POST(&side, fi_sendmsg(side.endpoint, &message, 0));
			POST(&side, fi_inject(side.endpoint, buffer, 8, side.peer[1]));
			expect_nothing(&side, side.sent);
			POST(&side, fi_sendmsg(side.endpoint, &message, FI_COMPLETION));
			CHECK(next_completion(side.sent).op_context == &contexts[1]);
			barrier(&side);
			expect_nothing(&side, side.sent);
		} else {
			struct fi_msg message = {.msg_iov = &piece,
						 .iov_count = 1,
						 .addr = side.peer[0],
						 .context = &contexts[1]};
			SAME(fi_recv(side.endpoint, buffer, 8, NULL, side.peer[0], &contexts[0]), 0);
			SAME(fi_recvmsg(side.endpoint, &message, 0), 0);
			SAME(fi_recvmsg(side.endpoint, &message, FI_COMPLETION), 0);
			SAME(fi_recvmsg(side.endpoint, &message, 0), 0);
			barrier(&side);
			if (round == 1)
				CHECK(next_completion(side.received).op_context == &contexts[0]);
			CHECK(next_completion(side.received).op_context == &contexts[1]);
			barrier(&side);
			expect_nothing(&side, side.received);
			/* An error is always reported. */
			SAME(fi_recvmsg(side.endpoint, &message, 0), 0);
			SAME(fi_cancel(&side.endpoint->fid, &contexts[1]), 0);
			SAME(next_error(side.received).err, FI_ECANCELED);
		}
		barrier(&side);
		side_close(&side);
	}
}

/* The endpoint's initial flags can be read and changed. */
static void changed_flags(int rank)
{
	struct side side;
	uint64_t flags = FI_TRANSMIT;

	side_open(&side, rank,
		  &(struct side_options){.send_bind = FI_SELECTIVE_COMPLETION,
					 .transmit_flags = FI_COMPLETION});
	SAME(fi_control(&side.endpoint->fid, FI_GETOPSFLAG, &flags), 0);
	SAME(flags, FI_COMPLETION);
	flags = FI_TRANSMIT | FI_TRANSMIT_COMPLETE;
	SAME(fi_control(&side.endpoint->fid, FI_SETOPSFLAG, &flags), 0);
	flags = FI_TRANSMIT;
	SAME(fi_control(&side.endpoint->fid, FI_GETOPSFLAG, &flags), 0);
	SAME(flags, FI_TRANSMIT_COMPLETE);
	/* Flags that are not offered are refused, and nothing changes. */
	SAME(fi_control(&side.endpoint->fid, FI_SETOPSFLAG, &(uint64_t){FI_TRANSMIT | FI_COMMIT_COMPLETE}),
	     -FI_EBADFLAGS);
	SAME(fi_control(&side.endpoint->fid, FI_SETOPSFLAG, &(uint64_t){FI_RECV | FI_INJECT}), -FI_EBADFLAGS);
	flags = FI_TRANSMIT;
	SAME(fi_control(&side.endpoint->fid, FI_GETOPSFLAG, &flags), 0);
	SAME(flags, FI_TRANSMIT_COMPLETE);
	POST(&side, fi_send(side.endpoint, buffer, 8, NULL, side.peer[0], NULL));
	expect_nothing(&side, side.sent);
	side_close(&side);
}

/*
 * With FI_DELIVERY_COMPLETE or FI_MATCH_COMPLETE a send is complete only when its bytes are in the peer's
 * buffer. Without these flags, a small send is complete at once.
 */
static void complete_at(int rank, uint64_t level)
{
	struct side side;
	struct iovec piece = {buffer, 0};
	char context = 0;

	side_open(&side, rank, NULL);
	for (size_t i = 0; i < SIZES; i++)
		for (uint64_t expected = 0; expected < 2; expected++) {
			uint64_t tag = i * 2 + expected;
			piece.iov_len = sizes[i];
			if (rank == 0) {
				struct fi_msg_tagged message = {.msg_iov = &piece,
								.iov_count = 1,
								.addr = side.peer[1],
								.tag = tag,
								.context = &context};
				if (expected)
					barrier(&side);
				fill(buffer, sizes[i], tag);
				POST(&side, fi_tsendmsg(side.endpoint, &message, level));
				if (!expected) {
					expect_nothing(&side, side.sent);
					barrier(&side);
				}
				CHECK(next_completion(side.sent).op_context == &context);
				/* The peer stored this before we saw the completion, so it holds now. */
				SAME(atomic_load(shared_word(0)) >= tag, 1);
				barrier(&side);
				continue;
			}
			atomic_store(shared_word(0), tag);
			if (!expected)
				barrier(&side);
			memset(buffer, 0xaa, sizes[i]);
			SAME(fi_trecv(side.endpoint, buffer, ROOM, NULL, side.peer[0], tag, 0, NULL), 0);
			if (expected)
				barrier(&side);
			SAME(next_completion(side.received).len, sizes[i]);
			CHECK_FILLED(buffer, sizes[i], tag);
			barrier(&side);
		}
	/* A discarded message is delivered, too: no send waits for ever. */
	piece.iov_len = 50000;
	if (rank == 0) {
		struct fi_msg_tagged message = {.msg_iov = &piece,
						.iov_count = 1,
						.addr = side.peer[1],
						.tag = 99,
						.context = &context};
		POST(&side, fi_tsendmsg(side.endpoint, &message, level));
		(void)next_completion(side.sent);
	} else {
		struct fi_cq_tagged_entry entry;
		struct fi_cq_err_entry error;
		ssize_t result = -FI_EAVAIL;
		while (result != 1) {
			SAME(fi_trecvmsg(side.endpoint,
					 &(struct fi_msg_tagged){.addr = side.peer[0], .tag = 99},
					 FI_PEEK | FI_DISCARD),
			     0);
			while ((result = fi_cq_read(side.received, &entry, 1)) == -FI_EAGAIN)
				;
			if (result == -FI_EAVAIL) {
				error = (struct fi_cq_err_entry){0};
				SAME(fi_cq_readerr(side.received, &error, 0), 1);
			}
		}
	}
	barrier(&side);
	side_close(&side);
}

static void delivery(int rank)
{
	complete_at(rank, FI_DELIVERY_COMPLETE);
}

static void match(int rank)
{
	complete_at(rank, FI_MATCH_COMPLETE);
}

/* The same as the default of all sends of an endpoint. */
static void match_by_default(int rank)
{
	struct side side;

	side_open(&side, rank, &(struct side_options){.transmit_flags = FI_MATCH_COMPLETE});
	if (rank == 0) {
		POST(&side, fi_send(side.endpoint, buffer, 8, NULL, side.peer[1], NULL));
		expect_nothing(&side, side.sent);
		barrier(&side);
		(void)next_completion(side.sent);
	} else {
		barrier(&side);
		SAME(fi_recv(side.endpoint, buffer, 8, NULL, side.peer[0], NULL), 0);
		SAME(next_completion(side.received).len, 8);
	}
	barrier(&side);
	side_close(&side);
}

/*
 * fi_sendmsg() with FI_INJECT and FI_DELIVERY_COMPLETE: the buffer is free at once, the completion comes
 * later.
 */
static void injected_delivery(int rank)
{
	struct side side;
	struct iovec piece = {buffer, 100};
	char context = 0;

	side_open(&side, rank, NULL);
	if (rank == 0) {
		struct fi_msg message = {
			.msg_iov = &piece, .iov_count = 1, .addr = side.peer[1], .context = &context};
		fill(buffer, 100, 3);
		POST(&side, fi_sendmsg(side.endpoint, &message, FI_INJECT | FI_DELIVERY_COMPLETE));
		memset(buffer, 0, 100);
		expect_nothing(&side, side.sent);
		barrier(&side);
		CHECK(next_completion(side.sent).op_context == &context);
	} else {
		barrier(&side);
		SAME(fi_recv(side.endpoint, buffer, 100, NULL, side.peer[0], NULL), 0);
		SAME(next_completion(side.received).len, 100);
		CHECK_FILLED(buffer, 100, 3);
	}
	barrier(&side);
	side_close(&side);
}

/* Errors do not overtake completions, do not get lost, and say what happened. */
static void errors(int rank)
{
	struct side side;
	struct fi_cq_err_entry error = {0};
	struct fi_cq_tagged_entry entry;
	char contexts[3];
	char text[64];
	char cut[6] = "";

	side_open(&side, rank, NULL);
	SAME(fi_cq_readerr(side.received, &error, 0), -FI_EAGAIN);
	for (int i = 0; i < 3; i++)
		SAME(fi_trecv(side.endpoint, buffer, i == 1 ? 3 : 8, NULL, FI_ADDR_UNSPEC, 1, 0,
			      &contexts[i]),
		     0);
	for (int i = 0; i < 3; i++)
		POST(&side, fi_tinject(side.endpoint, "1234567", 8, side.peer[rank], 1));
	/* Two messages, so that all have arrived. The successes before the error come first. */
	CHECK(next_completion(side.received).op_context == &contexts[0]);
	for (int i = 0; i < 3; i++) {
		ssize_t result = 0;
		while ((result = fi_cq_read(side.received, &entry, 1)) == -FI_EAGAIN)
			;
		SAME(result, -FI_EAVAIL);
	}
	error.err_data = text;
	error.err_data_size = sizeof(text);
	SAME(fi_cq_readerr(side.received, &error, 0), 1);
	SAME(error.err, FI_ETRUNC);
	CHECK(error.op_context == &contexts[1]);
	SAME(error.flags, FI_RECV | FI_TAGGED);
	CHECK(strstr(fi_cq_strerror(side.received, error.prov_errno, error.err_data, NULL, 0), "longer") !=
	      NULL);
	CHECK(fi_cq_strerror(side.received, error.prov_errno, error.err_data, cut, sizeof(cut)) == cut);
	SAME(strlen(cut), sizeof(cut) - 1);
	CHECK(next_completion(side.received).op_context == &contexts[2]);
	/* Every possible error has its own text. */
	static const int codes[] = {FI_ETRUNC,       FI_ECANCELED, FI_ENOMSG, FI_ECONNRESET,
				    FI_ECONNABORTED, EPROTO,       FI_ENOMEM};
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		for (size_t j = 0; j < i; j++)
			CHECK(strcmp(fi_cq_strerror(side.received, codes[i], NULL, NULL, 0),
				     fi_cq_strerror(side.received, codes[j], NULL, NULL, 0)) != 0);
	side_close(&side);
}

/* A read of no entries makes progress, even while the queue has unread entries. */
static void reading_nothing(int rank)
{
	struct side side;
	struct fi_cq_tagged_entry entries[4];

	side_open(&side, rank, NULL);
	for (int i = 0; i < 3; i++) {
		SAME(fi_recv(side.endpoint, buffer, 1, NULL, FI_ADDR_UNSPEC, NULL), 0);
		POST(&side, fi_inject(side.endpoint, "x", 1, side.peer[0]));
		/* The first message takes several polls, because it makes the connection. */
		for (int looks = 0; looks < 100; looks++)
			(void)fi_cq_read(side.received, NULL, 0);
		SAME(fi_cq_read(side.received, NULL, 0), 0);
	}
	SAME(fi_cq_read(side.received, entries, 4), 3);
	side_close(&side);
}

/* ---- waiting ---- */

static void *signal_later(void *cq)
{
	pause_for(0.05);
	SAME(fi_cq_signal(cq), 0);
	return NULL;
}

static void waiting(int rank)
{
	struct side side;
	struct fi_cq_tagged_entry entry;
	pthread_t thread;
	fi_addr_t source = 0;

	side_open(&side, rank, &(struct side_options){.wait = FI_WAIT_UNSPEC});
	if (rank == 0) {
		/* Nothing arrives: it waits at least this long, and not for ever. */
		double begin = now();
		SAME(fi_cq_sread(side.received, &entry, 1, NULL, 60), -FI_EAGAIN);
		CHECK(now() - begin >= 0.059);
		SAME(fi_cq_sread(side.received, &entry, 1, NULL, 0), -FI_EAGAIN);
		/* A signal from another thread ends a wait without a time limit. */
		SAME(pthread_create(&thread, NULL, signal_later, side.received), 0);
		SAME(fi_cq_sread(side.received, &entry, 1, NULL, -1), -FI_EAGAIN);
		SAME(pthread_join(thread, NULL), 0);
		/* A message ends it, too. */
		SAME(fi_recv(side.endpoint, buffer, 8, NULL, FI_ADDR_UNSPEC, &side), 0);
		barrier(NULL);
		SAME(fi_cq_sreadfrom(side.received, &entry, 1, &source, NULL, -1), 1);
		CHECK(entry.op_context == &side);
		SAME(source, side.peer[1]);
		/* An error ends it, too. */
		SAME(fi_recv(side.endpoint, buffer, 8, NULL, FI_ADDR_UNSPEC, &side), 0);
		SAME(fi_cancel(&side.endpoint->fid, &side), 0);
		SAME(fi_cq_sread(side.received, &entry, 1, NULL, -1), -FI_EAVAIL);
	} else {
		barrier(NULL);
		send_after(&side, 0.03, side.peer[0]);
	}
	barrier(&side);
	side_close(&side);
}

static void unsupported(int rank)
{
	struct side side;
	struct fid_cq *cq = NULL;

	side_open(&side, rank, NULL);
	CHECK(fi_cq_open(side.domain, &(struct fi_cq_attr){.wait_obj = FI_WAIT_MUTEX_COND}, &cq, NULL) < 0);
	CHECK(fi_cq_open(side.domain, &(struct fi_cq_attr){.format = 77}, &cq, NULL) < 0);
	SAME(fi_cq_open(side.domain, &(struct fi_cq_attr){.wait_obj = FI_WAIT_YIELD}, &cq, NULL), 0);
	SAME(fi_close(&cq->fid), 0);
	side_close(&side);
}

const struct scenario complete_scenarios[] = {
	{"reading_nothing", 1, reading_nothing},
	{"formats", 2, formats},
	{"beyond_size", 2, beyond_size},
	{"selective", 2, selective},
	{"changed_flags", 1, changed_flags},
	{"delivery", 2, delivery},
	{"match", 2, match},
	{"match_by_default", 2, match_by_default},
	{"injected_delivery", 2, injected_delivery},
	{"errors", 1, errors},
	{"waiting", 2, waiting},
	{"unsupported", 1, unsupported},
	{0},
};
