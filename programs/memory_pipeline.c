/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The limit of two copies: two threads, each on its own core, pass messages through a few shared
 * chunks. One thread copies from its buffer into the next free chunk. At the same time, the other
 * thread copies the oldest full chunk into its own buffer. There is no header, no matching and no
 * library, and messages follow each other without a pause. So no transport that copies twice can be
 * faster with these chunk sizes and these ways to write chunks: by memcpy, and with stores that
 * bypass the cache. The latter spares the other core from fetching lines out of the writer's cache,
 * and wins if the two cores share no cache.
 */
#include "memory.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#define CHUNKS 4        /* in flight; eight were no faster on any machine seen so far */
#define PIPELINE_NS 3e6 /* approximate time of a measurement */
#define MESSAGES_MIN 4

static const size_t chunk_sizes[] = {8192, 16384, 32768, 65536, 131072};

static const char *const ways[] = {"memcpy", "past-cache"};

#if defined(__x86_64__)
/* `to` is the beginning of a cache line, as in all chunks. */
static void copy_past_cache(char *to, const char *from, size_t length)
{
	size_t whole = length / LINE * LINE;

	for (size_t at = 0; at < whole; at += sizeof(__m128i))
		_mm_stream_si128((__m128i *)(void *)(to + at),
				 _mm_loadu_si128((const __m128i *)(const void *)(from + at)));
	memcpy(to + whole, from + whole, length - whole);
	_mm_sfence();
}
#else
static void copy_past_cache(char *to, const char *from, size_t length)
{
	memcpy(to, from, length);
}
#endif

struct pipeline {
	struct line written; /* number of full chunks, counted by the sender */
	struct line read;    /* number of chunks that are free again, counted by the receiver */
	char *chunks;
	char *to;
	size_t size, chunk_size;
	long messages;
	int past_cache; /* chunks are written by stores that bypass the cache */
	int cpu;        /* of the receiver */
};

static void copy_cached(char *to, const char *from, size_t length)
{
	memcpy(to, from, length);
}

/*
 * The sender's part of `messages` messages: waits for a free chunk, copies, and increments its own
 * word.
 */
static void send_all(struct pipeline *pipeline, const char *from)
{
	void (*copy)(char *, const char *, size_t) = pipeline->past_cache ? copy_past_cache : copy_cached;
	long count = 0;

	for (long message = 0; message < pipeline->messages; message++) {
		for (size_t at = 0; at < pipeline->size; at += pipeline->chunk_size, count++) {
			size_t left = pipeline->size - at;

			while (count - atomic_load_explicit(&pipeline->read.word, memory_order_acquire) ==
			       CHUNKS)
				;
			copy(pipeline->chunks + (size_t)(count % CHUNKS) * pipeline->chunk_size, from + at,
			     left < pipeline->chunk_size ? left : pipeline->chunk_size);
			atomic_store_explicit(&pipeline->written.word, count + 1, memory_order_release);
		}
	}
	while (atomic_load_explicit(&pipeline->read.word, memory_order_acquire) != count)
		;
}

static void *receive_all(void *argument)
{
	struct pipeline *pipeline = argument;
	long count = 0;

	/* The first store says that this thread runs; the sender waits for it. */
	atomic_store_explicit(&pipeline->read.word, 0, memory_order_release);
	for (long message = 0; message < pipeline->messages; message++) {
		for (size_t at = 0; at < pipeline->size; at += pipeline->chunk_size, count++) {
			size_t left = pipeline->size - at;

			while (atomic_load_explicit(&pipeline->written.word, memory_order_acquire) == count)
				;
			memcpy(pipeline->to + at,
			       pipeline->chunks + (size_t)(count % CHUNKS) * pipeline->chunk_size,
			       left < pipeline->chunk_size ? left : pipeline->chunk_size);
			atomic_store_explicit(&pipeline->read.word, count + 1, memory_order_release);
		}
	}
	return NULL;
}

/* Nanoseconds that `messages` messages take, from the first copy to the last. */
static double run(struct pipeline *pipeline, const char *from, long messages)
{
	unsigned long thread;
	double start;

	pipeline->messages = messages;
	atomic_store(&pipeline->written.word, 0);
	atomic_store(&pipeline->read.word, -1);
	start_thread(&thread, pipeline->cpu, receive_all, pipeline);
	while (atomic_load_explicit(&pipeline->read.word, memory_order_acquire) < 0)
		;
	start = now_ns();
	send_all(pipeline, from);
	start = now_ns() - start;
	pthread_join(thread, NULL);
	return start;
}

static void measure_chunks(struct pipeline *pipeline, const char *from, int repetition)
{
	double warm = run(pipeline, from, MESSAGES_MIN);
	long messages = (long)(MESSAGES_MIN * PIPELINE_NS / warm) + MESSAGES_MIN;
	double taken = run(pipeline, from, messages);

	printf("{\"limit\": \"pipelined-copy\", \"size\": %zu, \"chunk\": %zu, \"way\": \"%s\", "
	       "\"repetition\": %d, \"megabytes_per_second\": %.3f}\n",
	       pipeline->size, pipeline->chunk_size, ways[pipeline->past_cache], repetition,
	       (double)pipeline->size * (double)messages / taken * 1e3);
}

void measure_pipeline(int other_cpu, size_t size, int repetition)
{
	struct pipeline pipeline = {.size = size, .to = new_buffer(size), .cpu = other_cpu};
	char *from = new_buffer(size);

	for (size_t i = 0; i < sizeof(chunk_sizes) / sizeof(chunk_sizes[0]); i++) {
		pipeline.chunk_size = chunk_sizes[i];
		pipeline.chunks = new_buffer(CHUNKS * chunk_sizes[i]);
		for (pipeline.past_cache = 0; pipeline.past_cache < 2; pipeline.past_cache++)
			measure_chunks(&pipeline, from, repetition);
		free(pipeline.chunks);
	}
	free(pipeline.to);
	free(from);
}
