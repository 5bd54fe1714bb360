/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shared.h - the only access to bytes that a peer can write.
 *
 * A shared word is a struct around its value, so that a plain load or store of it does not compile.
 * Every access goes through the functions below and names its memory order. A peer may be hostile:
 * load a word once into a local variable, check the variable, and never load the word again for the
 * same decision.
 */
#ifndef VICINAL_REGION_SHARED_H
#define VICINAL_REGION_SHARED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
	_Atomic uint32_t hidden;
} shared_u32;

typedef struct {
	_Atomic uint64_t hidden;
} shared_u64;

/* One byte of a payload; always used as an array. */
typedef struct {
	unsigned char hidden;
} shared_bytes;

_Static_assert(sizeof(shared_u32) == 4 && sizeof(shared_u64) == 8 && sizeof(shared_bytes) == 1,
	       "a shared word has the size of its value");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2,
	       "a shared word must be one load or store, because a lock would not be shared");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the region's format is little endian");

static inline uint32_t shared_load_u32(const shared_u32 *word)
{
	return atomic_load_explicit(&word->hidden, memory_order_relaxed);
}

static inline uint32_t shared_acquire_u32(const shared_u32 *word)
{
	return atomic_load_explicit(&word->hidden, memory_order_acquire);
}

static inline void shared_store_u32(shared_u32 *word, uint32_t value)
{
	atomic_store_explicit(&word->hidden, value, memory_order_relaxed);
}

static inline void shared_release_u32(shared_u32 *word, uint32_t value)
{
	atomic_store_explicit(&word->hidden, value, memory_order_release);
}

static inline uint64_t shared_load_u64(const shared_u64 *word)
{
	return atomic_load_explicit(&word->hidden, memory_order_relaxed);
}

static inline uint64_t shared_acquire_u64(const shared_u64 *word)
{
	return atomic_load_explicit(&word->hidden, memory_order_acquire);
}

static inline void shared_store_u64(shared_u64 *word, uint64_t value)
{
	atomic_store_explicit(&word->hidden, value, memory_order_relaxed);
}

static inline void shared_release_u64(shared_u64 *word, uint64_t value)
{
	atomic_store_explicit(&word->hidden, value, memory_order_release);
}

/*
 * Order the loads before it before the loads after it: loads of data before the load of the word
 * that says whether the data was valid. (ThreadSanitizer does not support fences.)
 */
static inline void shared_fence_loads(void)
{
#ifndef __SANITIZE_THREAD__
	atomic_thread_fence(memory_order_acquire);
#endif
}

/* The same for stores, on the writer's side. */
static inline void shared_fence_stores(void)
{
#ifndef __SANITIZE_THREAD__
	atomic_thread_fence(memory_order_release);
#endif
}

/*
 * Order a store before it and a load after it. A sleeper says that it sleeps and then polls; a
 * waker rings and then checks whether the receiver sleeps. For slow paths only.
 */
static inline void shared_fence_full(void)
{
#ifndef __SANITIZE_THREAD__
	atomic_thread_fence(memory_order_seq_cst);
#else
	atomic_uint nothing =
		0; /* an exchange is a fence for the processor, and one that the sanitizer understands */
	(void)atomic_exchange(&nothing, 1);
#endif
}

/* Only the claim word is written in this way: see struct member_slot. */
static inline bool shared_claim_u64(shared_u64 *word, uint64_t expected, uint64_t value)
{
	return atomic_compare_exchange_strong_explicit(&word->hidden, &expected, value, memory_order_acq_rel,
						       memory_order_acquire);
}

/*
 * Copy bytes out of the region. The barrier keeps the compiler from loading a header's field again
 * after it was checked, because the compiler assumes that nothing else changes the bytes.
 */
static inline void shared_copy_in(void *to, const shared_bytes *from, size_t length)
{
	memcpy(to, (const void *)from, length);
	atomic_signal_fence(memory_order_acq_rel);
}

/* Copy bytes into the region. */
static inline void shared_copy_out(shared_bytes *to, const void *from, size_t length)
{
	memcpy((void *)to, from, length);
}

/*
 * Clear memory in the region, word by word: a concurrent reader of a predecessor's data sees each
 * word either unchanged or cleared. `to` is aligned to words, and `length` is a multiple of a word.
 */
static inline void shared_clear(shared_bytes *to, size_t length)
{
	shared_u64 *words = (shared_u64 *)(void *)to;

	for (size_t i = 0; i < length / sizeof(*words); i++)
		shared_store_u64(&words[i], 0);
}

#endif
