/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy.h - copies into and out of the region: short copies, and long copies that bypass the cache.
 */
#ifndef VICINAL_REGION_COPY_H
#define VICINAL_REGION_COPY_H

#include "region/layout.h"

/*
 * Copies of at most 64 bytes whose length is known only at run time. Overlapping loads and stores
 * cost less than a call of memcpy().
 */
#pragma GCC diagnostic push
/* GCC does not see that callers bound `length` by the same sum that bounds `to`. */
#pragma GCC diagnostic ignored "-Wstringop-overflow"
static inline void copy_small(void *to, const void *from, size_t length)
{
	char *target = to;
	const char *source = from;

	if (length >= 16) {
		if (length > 32) {
			memcpy(target + 16, source + 16, 16);
			if (length > 48)
				memcpy(target + 32, source + 32, 16);
		}
		char head[16];
		char tail[16];
		memcpy(head, source, 16);
		memcpy(tail, source + length - 16, 16);
		memcpy(target, head, 16);
		memcpy(target + length - 16, tail, 16);
	} else if (length >= 8) {
		uint64_t head = 0;
		uint64_t tail = 0;
		memcpy(&head, source, 8);
		memcpy(&tail, source + length - 8, 8);
		memcpy(target, &head, 8);
		memcpy(target + length - 8, &tail, 8);
	} else if (length >= 4) {
		uint32_t head = 0;
		uint32_t tail = 0;
		memcpy(&head, source, 4);
		memcpy(&tail, source + length - 4, 4);
		memcpy(target, &head, 4);
		memcpy(target + length - 4, &tail, 4);
	} else if (length > 0) {
		target[0] = source[0];
		target[length / 2] = source[length / 2];
		target[length - 1] = source[length - 1];
	}
}

#pragma GCC diagnostic pop

static inline void copy_small_out(shared_bytes *to, const void *from, size_t length)
{
	copy_small((void *)to, from, length);
}

static inline void copy_small_in(void *to, const shared_bytes *from, size_t length)
{
	copy_small(to, (const void *)from, length);
}

/*
 * As shared_copy_out(), with non-temporal stores that bypass the cache, if the processor has them.
 * They are ordered before all stores after the call.
 */
void copy_past_cache_out(shared_bytes *to, const void *from, size_t length);

/* As shared_copy_in(), with a loop over lines instead of the processor's string copy. */
void copy_linewise_in(void *to, const shared_bytes *from, size_t length);

#endif
