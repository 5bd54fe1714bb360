/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shared.h - stands for provider/region/shared.h in Frama-C, which does not know _Atomic. A load touches the
 * word and returns any value, a different one each time, because a hostile peer may write in between. A store
 * touches the word. Fences do nothing: the proof holds for any loaded values.
 */
#ifndef VICINAL_REGION_SHARED_H
#define VICINAL_REGION_SHARED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
	uint32_t hidden;
} shared_u32;

typedef struct {
	uint64_t hidden;
} shared_u64;

typedef struct {
	unsigned char hidden;
} shared_bytes;

extern volatile uint32_t any_u32;
extern volatile uint64_t any_u64;

static inline uint32_t shared_load_u32(const shared_u32 *word)
{
	uint32_t value = word->hidden;

	(void)value;
	return any_u32;
}

static inline uint64_t shared_load_u64(const shared_u64 *word)
{
	uint64_t value = word->hidden;

	(void)value;
	return any_u64;
}

static inline void shared_store_u32(shared_u32 *word, uint32_t value)
{
	word->hidden = value;
}

static inline void shared_store_u64(shared_u64 *word, uint64_t value)
{
	word->hidden = value;
}

#define shared_acquire_u32 shared_load_u32
#define shared_acquire_u64 shared_load_u64
#define shared_release_u32 shared_store_u32
#define shared_release_u64 shared_store_u64

static inline void shared_fence_loads(void)
{
}
static inline void shared_fence_stores(void)
{
}
static inline void shared_fence_full(void)
{
}

static inline bool shared_claim_u64(shared_u64 *word, uint64_t expected, uint64_t value)
{
	if (shared_load_u64(word) != expected)
		return false;
	word->hidden = value;
	return true;
}

static inline void shared_copy_in(void *to, const shared_bytes *from, size_t length)
{
	memcpy(to, (const void *)from, length);
}

static inline void shared_copy_out(shared_bytes *to, const void *from, size_t length)
{
	memcpy((void *)to, from, length);
}

static inline void shared_clear(shared_bytes *to, size_t length)
{
	memset((void *)to, 0, length);
}

#endif
