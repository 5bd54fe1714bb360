/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * thresholds.h - where one way of doing something ends and the next begins, as suits a machine.
 *
 * They are a sender's, and its own waiting's: a receiver takes whatever lengths the format allows,
 * so peers with different ones work together.
 */
#ifndef VICINAL_PROTO_THRESHOLDS_H
#define VICINAL_PROTO_THRESHOLDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct thresholds {
	uint32_t short_bytes;        /* up to so many in slots of the ring, what goes before them included */
	uint32_t eager_bytes;        /* up to so many in one chunk */
	uint32_t piece_bytes;        /* longer messages in pieces of so many at most */
	uint32_t pieces_in_flight;   /* of those that take large chunks, to a peer */
	uint32_t single_copy_bytes;  /* above so many one copy is offered */
	uint32_t polls_per_read;     /* of a read that finds nothing at first */
	uint32_t reads_before_yield; /* that found nothing in a row */
	uint32_t reads_before_sleep; /* likewise */
};

/* What is known of one: src/vicinal/labs/tune/profile.py has the same table. */
struct threshold {
	const char *key; /* in a profile */
	const char *variable;
	size_t offset; /* in struct thresholds */
	uint32_t usual;
	uint32_t least;
	uint32_t most;
	const char *meaning;
};

#define THRESHOLDS 8U
extern const struct threshold threshold_table[THRESHOLDS];

/* All as usual. */
void thresholds_open(struct thresholds *thresholds);
/* Its present value. */
uint32_t threshold_get(const struct thresholds *thresholds, const struct threshold *threshold);
/* Set it as `text` says. False, and it stays, for what is no number in its range. */
bool threshold_set(struct thresholds *thresholds, const struct threshold *threshold, const char *text);

/* A number, with K, M or G behind it or not; 0 for what is none. */
size_t size_of_text(const char *text);

#endif
