/* SPDX-License-Identifier: BSD-3-Clause */
/* copy.c - long copies into and out of the region that do not use memcpy(). */
#include "region/copy.h"

#if defined(__x86_64__)
#include <emmintrin.h>

/* Whole lines only: a store to part of a line would first read the line from memory. */
static void stream_lines(unsigned char *to, const unsigned char *from, size_t lines)
{
	for (; lines > 0; lines--, to += REGION_LINE, from += REGION_LINE) {
		__m128i first = _mm_loadu_si128((const __m128i *)(const void *)from);
		__m128i second = _mm_loadu_si128((const __m128i *)(const void *)(from + 16));
		__m128i third = _mm_loadu_si128((const __m128i *)(const void *)(from + 32));
		__m128i fourth = _mm_loadu_si128((const __m128i *)(const void *)(from + 48));
		_mm_stream_si128((__m128i *)(void *)to, first);
		_mm_stream_si128((__m128i *)(void *)(to + 16), second);
		_mm_stream_si128((__m128i *)(void *)(to + 32), third);
		_mm_stream_si128((__m128i *)(void *)(to + 48), fourth);
	}
}

/* The same, through the cache. */
static void copy_lines(unsigned char *to, const unsigned char *from, size_t lines)
{
	for (; lines > 0; lines--, to += REGION_LINE, from += REGION_LINE) {
		__m128i first = _mm_loadu_si128((const __m128i *)(const void *)from);
		__m128i second = _mm_loadu_si128((const __m128i *)(const void *)(from + 16));
		__m128i third = _mm_loadu_si128((const __m128i *)(const void *)(from + 32));
		__m128i fourth = _mm_loadu_si128((const __m128i *)(const void *)(from + 48));
		_mm_storeu_si128((__m128i *)(void *)to, first);
		_mm_storeu_si128((__m128i *)(void *)(to + 16), second);
		_mm_storeu_si128((__m128i *)(void *)(to + 32), third);
		_mm_storeu_si128((__m128i *)(void *)(to + 48), fourth);
	}
}

void copy_linewise_in(void *to, const shared_bytes *from, size_t length)
{
	unsigned char *target = to;
	const unsigned char *source = (const unsigned char *)(const void *)from;
	size_t done = length / REGION_LINE * REGION_LINE;

	copy_lines(target, source, length / REGION_LINE);
	shared_copy_in(target + done, (const shared_bytes *)(const void *)(source + done), length - done);
}

void copy_past_cache_out(shared_bytes *to, const void *from, size_t length)
{
	unsigned char *target = (unsigned char *)(void *)to;
	const unsigned char *source = from;
	size_t head = (REGION_LINE - (uintptr_t)target % REGION_LINE) % REGION_LINE;

	if (length < head + REGION_LINE) {
		memcpy(target, source, length);
		return;
	}
	size_t lines = (length - head) / REGION_LINE;
	size_t done = head + lines * REGION_LINE;
	memcpy(target, source, head);
	stream_lines(target + head, source + head, lines);
	memcpy(target + done, source + done, length - done);
	/* A release store does not order earlier non-temporal stores. */
	_mm_sfence();
}

#else

void copy_linewise_in(void *to, const shared_bytes *from, size_t length)
{
	shared_copy_in(to, from, length);
}

void copy_past_cache_out(shared_bytes *to, const void *from, size_t length)
{
	shared_copy_out(to, from, length);
}

#endif
