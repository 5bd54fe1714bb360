/* SPDX-License-Identifier: BSD-3-Clause */
/* source.c - see source.h, and preload/region_source.h for the provider's side. */
#include "collectives/source.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

/* No MPI function is called under the mutex: the provider holds locks when it calls the functions here. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct region_source region; /* written under the mutex, while it is not offered */
static atomic_bool is_offered;
static atomic_bool is_leaving;
static atomic_uint kept;

#pragma GCC visibility push(default)
region_offer_function vicinal_region_offer;
region_withdraw_function vicinal_region_withdraw;

int vicinal_region_offer(const struct region_source *offered)
{
	int result = 0;

	if (offered->version != REGION_SOURCE_VERSION)
		return -EPROTONOSUPPORT;
	(void)pthread_mutex_lock(&mutex);
	/* The first endpoint carries the program's messages. */
	if (atomic_load(&is_offered))
		result = -EBUSY;
	else
		region = *offered;
	atomic_store(&is_offered, true);
	(void)pthread_mutex_unlock(&mutex);
	return result;
}

void vicinal_region_withdraw(const void *heap)
{
	(void)pthread_mutex_lock(&mutex);
	if (region.heap == heap)
		atomic_store(&is_offered, false);
	(void)pthread_mutex_unlock(&mutex);
}
#pragma GCC visibility pop

bool source_is_offered(void)
{
	return atomic_load_explicit(&is_offered, memory_order_acquire);
}

const struct region_source *source_region(void)
{
	return &region;
}

unsigned char *source_heap(uint32_t slot)
{
	return region.first_heap + (size_t)slot * region.section_bytes;
}

const shared_u64 *source_claim(uint32_t slot)
{
	return (const shared_u64 *)(const void *)((const unsigned char *)region.first_claim +
						  (size_t)slot * region.claim_bytes);
}

bool source_is_leaving(void)
{
	return atomic_load(&is_leaving);
}

void source_set_leaving(bool leave)
{
	atomic_store(&is_leaving, leave);
}

uint32_t source_count_kept(int more)
{
	return atomic_fetch_add(&kept, (unsigned int)more) + (unsigned int)more;
}

void *source_allocate(size_t bytes)
{
	void *block = NULL;

	/* Under the mutex, because the heap is gone when vicinal_region_withdraw() has returned. */
	(void)pthread_mutex_lock(&mutex);
	if (atomic_load(&is_offered))
		block = region.allocate(region.heap, bytes, 1, false);
	(void)pthread_mutex_unlock(&mutex);
	return block;
}
