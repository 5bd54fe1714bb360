/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.c - see memory.h. */
#include "windows/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/source.h"

#define LISTS 256U

struct block {
	void *address;
	struct block *next; /* with the same place in the table */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks[LISTS]; /* under the mutex */

enum memory_choice memory_choice(void)
{
	static int choice = -1; /* threads that decide at once store the same */

	if (choice < 0) {
		const char *text = getenv("VICINAL_WINDOWS");
		choice = text == NULL               ? MEMORY_BY_DEFAULT
			 : strcmp(text, "on") == 0  ? MEMORY_ON
			 : strcmp(text, "off") == 0 ? MEMORY_OFF
						    : MEMORY_BY_DEFAULT;
	}
	return (enum memory_choice)choice;
}

bool memory_is_offered(void)
{
	enum memory_choice choice = memory_choice();

	return source_is_offered() &&
	       (choice == MEMORY_ON || (choice == MEMORY_BY_DEFAULT && source_region()->sparse_heaps));
}

bool memory_is_leaving(void)
{
	return source_is_leaving();
}

static struct block **list_of(const void *address)
{
	return &blocks[(uintptr_t)address / 4096 % LISTS];
}

void *memory_allocate(uint64_t bytes)
{
	struct block *block = NULL;

	if (!memory_is_offered() || memory_is_leaving() || bytes > source_region()->heap_bytes ||
	    (block = malloc(sizeof(*block))) == NULL)
		return NULL;
	block->address = source_allocate(bytes != 0 ? bytes : 1);
	if (block->address == NULL) {
		free(block);
		return NULL;
	}
	(void)pthread_mutex_lock(&mutex);
	block->next = *list_of(block->address);
	*list_of(block->address) = block;
	(void)source_count_kept(1);
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
	(void)source_region()->release(address);
	(void)source_count_kept(-1);
	return true;
}

bool memory_find(const void *address, uint64_t bytes, struct memory_place *place)
{
	const struct region_source *source = source_region();

	if (!memory_is_offered())
		return false;
	/* The subtraction wraps: an address below the heap gives a distance far above its end. */
	uint64_t distance =
		bytes == 0 ? 0 : (uint64_t)((uintptr_t)address - (uintptr_t)source_heap(source->slot));
	if (distance > source->heap_bytes || bytes > source->heap_bytes - distance)
		return false;
	*place = (struct memory_place){
		.id = {source->id[0], source->id[1]},
		.offset = distance,
		.bytes = bytes,
		.slot = source->slot,
		.epoch = source->epoch,
	};
	return true;
}

bool memory_is_gone(uint32_t slot, uint32_t epoch, uint64_t heartbeat[2])
{
	return source_region()->is_gone(source_region()->member, slot, epoch, heartbeat);
}

const shared_u64 *memory_claim(uint32_t slot)
{
	return source_claim(slot);
}

unsigned char *memory_map(const struct memory_place *place)
{
	const struct region_source *source = source_region();

	if (!memory_is_offered() || place->id[0] != source->id[0] || place->id[1] != source->id[1] ||
	    place->slot >= source->members || place->offset > source->heap_bytes ||
	    place->bytes > source->heap_bytes - place->offset)
		return NULL;
	return source_heap(place->slot) + place->offset;
}
