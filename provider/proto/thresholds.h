/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * thresholds.h - lengths and counts at which a process changes its protocol or its way of waiting. The best
 * values depend on the host.
 *
 * Thresholds concern only the sender and its own waiting. A receiver accepts all lengths that the format
 * allows, so peers with different thresholds work together.
 */
#ifndef VICINAL_PROTO_THRESHOLDS_H
#define VICINAL_PROTO_THRESHOLDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct thresholds {
	uint32_t short_bytes;        /* longest message in slots of the ring, including its prefix */
	uint32_t eager_bytes;        /* longest message in one chunk */
	uint32_t piece_bytes;        /* longest piece of a longer message */
	uint32_t pieces_in_flight;   /* pieces with large chunks to one peer */
	uint32_t single_copy_bytes;  /* a single copy is offered above this length */
	uint32_t polls_per_read;     /* of the first reads that find nothing */
	uint32_t reads_before_yield; /* in a row that found nothing */
	uint32_t reads_before_sleep; /* in a row that found nothing */
};

/* A threshold's properties. src/vicinal/labs/tune/profile.py has the same table. */
struct threshold {
	const char *key; /* its key in a profile */
	const char *variable;
	size_t offset; /* in struct thresholds */
	uint32_t usual;
	uint32_t least;
	uint32_t most;
	const char *meaning;
};

#define THRESHOLDS 8U
extern const struct threshold threshold_table[THRESHOLDS];

/* Sets all thresholds to their defaults. */
void thresholds_open(struct thresholds *thresholds);
uint32_t threshold_get(const struct thresholds *thresholds, const struct threshold *threshold);
/* Sets a threshold from text. Returns false, without a change, if `text` is no number in its range. */
bool threshold_set(struct thresholds *thresholds, const struct threshold *threshold, const char *text);

/* A number, optionally followed by K, M or G. Returns 0 if the text is invalid. */
size_t size_of_text(const char *text);

#endif
