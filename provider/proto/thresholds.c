/* SPDX-License-Identifier: BSD-3-Clause */
/* thresholds.c - the thresholds, their defaults and their ranges. */
#include "proto/thresholds.h"
#include "proto/messenger.h"

#include <stdlib.h>

#define ENTRY(field, name, usual, least, most, meaning) \
	{ \
#field, "VICINAL_" name, offsetof(struct thresholds, field), usual, least, most, meaning \
	}

/*
 * The defaults were measured: docs/decisions/0020. A receiver has room for WIRE_SHORT_BYTES and CHUNK_LARGE,
 * and an injected message must fit in a chunk. These limits bound the ranges.
 */
const struct threshold threshold_table[THRESHOLDS] = {
	ENTRY(short_bytes, "SHORT_BYTES", WIRE_SHORT_BYTES, WIRE_INLINE_BYTES, WIRE_SHORT_BYTES,
	      "The longest message in bytes that is sent in slots of the ring."),
	ENTRY(eager_bytes, "EAGER_BYTES", EAGER_BYTES, EAGER_BYTES, CHUNK_LARGE,
	      "The longest message in bytes that is sent in one chunk. Longer ones are sent in pieces."),
	ENTRY(piece_bytes, "PIECE_BYTES", CHUNK_LARGE, CHUNK_SMALL, CHUNK_LARGE,
	      "The most bytes of a piece of a large message."),
	ENTRY(pieces_in_flight, "PIECES_IN_FLIGHT", 8, 1, 64,
	      "The most pieces of more than 16 KiB that are in flight to a process."),
	ENTRY(single_copy_bytes, "SINGLE_COPY_BYTES", SINGLE_COPY_BYTES, CHUNK_MEDIUM, 1U << 30,
	      "Messages of more bytes are copied once, if that is possible."),
	ENTRY(polls_per_read, "POLLS_PER_READ", 64, 1, 1024,
	      "The polls of a completion queue's read before it reports that nothing is there."),
	ENTRY(reads_before_yield, "READS_BEFORE_YIELD", 2000, 1, 1U << 24,
	      "The reads in a row that find nothing before a process yields its core."),
	ENTRY(reads_before_sleep, "READS_BEFORE_SLEEP", 20000, 1, 1U << 30,
	      "The reads in a row that find nothing before a process sleeps for a while."),
};

static uint32_t *field_of(struct thresholds *thresholds, const struct threshold *threshold)
{
	return (uint32_t *)(void *)((char *)thresholds + threshold->offset);
}

void thresholds_open(struct thresholds *thresholds)
{
	for (uint32_t i = 0; i < THRESHOLDS; i++)
		*field_of(thresholds, &threshold_table[i]) = threshold_table[i].usual;
}

uint32_t threshold_get(const struct thresholds *thresholds, const struct threshold *threshold)
{
	return *(const uint32_t *)(const void *)((const char *)thresholds + threshold->offset);
}

bool threshold_set(struct thresholds *thresholds, const struct threshold *threshold, const char *text)
{
	size_t value = size_of_text(text);

	if (value < threshold->least || value > threshold->most)
		return false;
	*field_of(thresholds, threshold) = (uint32_t)value;
	return true;
}

size_t size_of_text(const char *text)
{
	static const char units[] = "KMG";
	char *end = NULL;

	errno = 0;
	unsigned long long number = strtoull(text, &end, 10);
	if (end == text || errno != 0 || *text < '0' || *text > '9')
		return 0;
	if (*end == '\0')
		return (size_t)number;
	const char *unit = strchr(units, *end & ~0x20);
	if (unit == NULL || end[1] != '\0')
		return 0;
	unsigned shift = 10U * (unsigned)(unit - units + 1);
	return number <= SIZE_MAX >> shift ? (size_t)number << shift : 0;
}
