/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.c - see memory.h. The region is offered as to the collectives: preload/region_source.h. */
#include "windows/memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "collectives/library.h"
#include "preload/region_source.h"

#define LISTS 256U

struct block {
	void *address;
	struct block *next; /* with the same place in the table */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks[LISTS]; /* under the mutex */
static struct region_source source; /* constant once `has_source` is set, until MPI_Finalize() */
static atomic_bool has_source;

static bool is_finalized(void)
{
	int flag = 0;

	mpi_look_up();
	return MPI_CALL(Finalized, int *)(&flag) == MPI_OK && flag != 0;
}

#pragma GCC visibility push(default)
region_offer_function vicinal_windows_offer;

int vicinal_windows_offer(const struct region_source *offered)
{
	if (offered->version != REGION_SOURCE_VERSION)
		return -EPROTONOSUPPORT;
	/* The first endpoint carries the program's messages, so it stays open until the MPI library ends. */
	if (atomic_load(&has_source) && !is_finalized())
		return -EBUSY;
	(void)pthread_mutex_lock(&mutex);
	source = *offered;
	atomic_store(&has_source, true);
	(void)pthread_mutex_unlock(&mutex);
	return 0;
}
#pragma GCC visibility pop

bool memory_is_offered(void)
{
	return atomic_load_explicit(&has_source, memory_order_acquire);
}

static struct block **list_of(const void *address)
{
	return &blocks[(uintptr_t)address / 4096 % LISTS];
}

void *memory_allocate(uint64_t bytes)
{
	struct block *block =
		memory_is_offered() && bytes <= source.heap_bytes ? malloc(sizeof(*block)) : NULL;

	if (block == NULL)
		return NULL;
	block->address = source.allocate(source.heap, bytes, 1, false);
	if (block->address == NULL) {
		free(block);
		return NULL;
	}
	(void)pthread_mutex_lock(&mutex);
	block->next = *list_of(block->address);
	*list_of(block->address) = block;
	(void)pthread_mutex_unlock(&mutex);
	return block->address;
}

bool memory_release(void *address)
{
	struct block *found = NULL;

	(void)pthread_mutex_lock(&mutex);
	for (struct block **link = list_of(address); *link != NULL; link = &(*link)->next)
		if ((*link)->address == address) {
			found = *link;
			*link = found->next;
			break;
		}
	(void)pthread_mutex_unlock(&mutex);
	if (found == NULL)
		return false;
	free(found);
	(void)source.release(address);
	return true;
}

static unsigned char *heap_of(uint32_t slot)
{
	return source.first_heap + (size_t)slot * source.section_bytes;
}

bool memory_find(const void *address, uint64_t bytes, struct memory_place *place)
{
	if (!memory_is_offered())
		return false;
	/* The subtraction wraps: an address below the heap gives a distance far above its end. */
	uint64_t distance = bytes == 0 ? 0 : (uint64_t)((uintptr_t)address - (uintptr_t)heap_of(source.slot));
	if (distance > source.heap_bytes || bytes > source.heap_bytes - distance)
		return false;
	*place = (struct memory_place){
		.id = {source.id[0], source.id[1]},
		.offset = distance,
		.bytes = bytes,
		.slot = source.slot,
		.epoch = source.epoch,
	};
	return true;
}

bool memory_is_gone(uint32_t slot, uint32_t epoch, uint64_t heartbeat[2])
{
	return source.is_gone(source.member, slot, epoch, heartbeat);
}

unsigned char *memory_map(const struct memory_place *place)
{
	if (!memory_is_offered() || place->id[0] != source.id[0] || place->id[1] != source.id[1] ||
	    place->slot >= source.members || place->offset > source.heap_bytes ||
	    place->bytes > source.heap_bytes - place->offset)
		return NULL;
	return heap_of(place->slot) + place->offset;
}
