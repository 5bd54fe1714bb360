/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * late.c - senders whose addresses are inserted after they have sent: from then on completions name them.
 *
 * Where VICINAL_REGION names several regions, rank 0 is in all of them and rank 1 only in the last.
 */
#include "harness.h"

#include <stdlib.h>
#include <unistd.h>

#define TAG 5U
/* Shared words after a name: the rank that has received enough. */
enum { TO_FIRST = NAME_MAX_BYTES / sizeof(uint64_t), TO_SECOND };

static void choose_region(int rank)
{
	const char *list = getenv("VICINAL_REGION");

	CHECK(list != NULL);
	if (rank == 1 && strrchr(list, ',') != NULL)
		SAME(setenv("VICINAL_REGION", strrchr(list, ',') + 1, 1), 0);
}

/* Truncate the file of the region that both are in. */
static void cut_region(void)
{
	const char *list = getenv("VICINAL_REGION");
	const char *last = list != NULL && strrchr(list, ',') != NULL ? strrchr(list, ',') + 1 : list;

	CHECK(last != NULL);
	SAME(truncate(strncmp(last, "file:", 5) == 0 ? last + 5 : last, 0), 0);
}

/* Open both ranks and publish their addresses. Neither inserts the other's. */
static void open_unknown(struct side *side, int rank, uint64_t names[2][NAME_MAX_BYTES / sizeof(uint64_t)])
{
	size_t length = NAME_MAX_BYTES;

	choose_region(rank);
	side_prepare(side, rank, &(struct side_options){0});
	side->endpoints[side->count++] = side->endpoint = side_endpoint(side, &(struct side_options){0});
	SAME(fi_enable(side->endpoint), 0);
	SAME(fi_getname(&side->endpoint->fid, names[rank], &length), 0);
	for (int of = 0; of < 2; of++) {
		for (int i = 0; of == rank && i < NAME_MAX_BYTES / (int)sizeof(uint64_t); i++)
			*shared_word(i) = names[rank][i];
		barrier(NULL);
		for (int i = 0; i < NAME_MAX_BYTES / (int)sizeof(uint64_t); i++)
			names[of][i] = *shared_word(i);
		barrier(NULL);
	}
}

/*
 * Receive the next word. Returns its source. Operations in progress when the region went end with an error.
 */
static fi_addr_t receive_word(const struct side *side, fi_addr_t from)
{
	struct fi_cq_tagged_entry entry = {0};
	struct fi_cq_err_entry error = {0};
	uint64_t word = 0;
	fi_addr_t source = 0;
	ssize_t result = -FI_ECONNABORTED;

	while (result == -FI_ECONNABORTED) {
		result = fi_trecv(side->endpoint, &word, sizeof(word), NULL, from, TAG, 0, &word);
		while (result == 0 &&
		       (result = fi_cq_readfrom(side->received, &entry, 1, &source)) == -FI_EAGAIN)
			result = 0;
		if (result == -FI_EAVAIL) {
			SAME(fi_cq_readerr(side->received, &error, 0), 1);
			result = -error.err;
		}
	}
	SAME(result, 1);
	SAME(word, TAG);
	return source;
}

/*
 * Send words until the peer has enough. The first may be lost with the region, and their errors are reported.
 */
static void send_words(const struct side *side, fi_addr_t to, int enough)
{
	const uint64_t word = TAG;

	while (*shared_word(enough) == 0) {
		ssize_t result = fi_tinject(side->endpoint, &word, sizeof(word), to, TAG);
		CHECK(result == 0 || result == -FI_EAGAIN || result == -FI_ECONNABORTED);
		for (int i = 0; i < 1000; i++)
			side_progress(side);
	}
}

/* A completion that waits in the queue gets the number that its sender has when it is read. */
static void before_reading(int rank)
{
	struct side side;
	uint64_t names[2][NAME_MAX_BYTES / sizeof(uint64_t)];
	uint64_t word = 0;
	fi_addr_t other = 0;
	fi_addr_t source = 0;

	open_unknown(&side, rank, names);
	if (rank == 1) {
		SAME(fi_av_insert(side.av, names[0], 1, &other, 0, NULL), 1);
		POST(&side, fi_tinject(side.endpoint, &(uint64_t){TAG}, sizeof(uint64_t), other, TAG));
		barrier(&side);
	} else {
		SAME(fi_trecv(side.endpoint, &word, sizeof(word), NULL, FI_ADDR_UNSPEC, TAG, 0, &word), 0);
		barrier(&side);
		while (fi_cq_read(side.received, NULL, 0) != 0)
			;
		SAME(fi_av_insert(side.av, names[1], 1, &other, 0, NULL), 1);
		(void)next_completion_from(side.received, &source);
		SAME(source, other);
	}
	barrier(&side);
	side_close(&side);
}

/*
 * When the address is inserted, the region of the message can no longer be used. This must be the last
 * scenario, because it leaves no region.
 */
static void after_the_cut(int rank)
{
	struct side side;
	uint64_t names[2][NAME_MAX_BYTES / sizeof(uint64_t)];
	fi_addr_t other = 0;

	open_unknown(&side, rank, names);
	if (rank == 1) {
		SAME(fi_av_insert(side.av, names[0], 1, &other, 0, NULL), 1);
		POST(&side, fi_tinject(side.endpoint, &(uint64_t){TAG}, sizeof(uint64_t), other, TAG));
		barrier(&side);
		barrier(&side);
		send_words(&side, other, TO_FIRST);
		SAME(receive_word(&side, other), other);
		*shared_word(TO_SECOND) = 1;
	} else {
		SAME(receive_word(&side, FI_ADDR_UNSPEC), FI_ADDR_NOTAVAIL);
		barrier(&side);
		cut_region();
		SAME(fi_av_insert(side.av, names[1], 1, &other, 0, NULL), 1);
		barrier(&side);
		SAME(receive_word(&side, FI_ADDR_UNSPEC), other);
		SAME(receive_word(&side, other), other);
		*shared_word(TO_FIRST) = 1;
		send_words(&side, other, TO_SECOND);
	}
	barrier(&side);
	side_close(&side);
}

const struct scenario late_scenarios[] = {
	{"before_reading", 2, before_reading},
	{"after_the_cut", 2, after_the_cut},
	{0},
};
