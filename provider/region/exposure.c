/* SPDX-License-Identifier: BSD-3-Clause */
/* exposure.c - the table of exposures: its owner writes it, its peers read it. */
#include "region/exposure.h"

#include "region/transfer.h"

/* ---- the owner's side ---- */

void exposure_publish(struct exposures *exposures, const struct member *self, const void *of, uint64_t key,
		      uint64_t address, uint32_t access, const struct heap_part *part)
{
	struct section_header *header = section_header(self->region, self->slot);
	uint32_t index = 0;

	while (index < REGION_EXPOSURES && exposures->of[index] != NULL)
		index++;
	/* A successor may already own the section. */
	if (index == REGION_EXPOSURES || !member_is_joined(self))
		return;
	struct exposure_line *line = &header->exposures[index];
	/*
	 * No peer reads the line now, because its sequence is 0 or odd. Go on to the next even
	 * number.
	 */
	uint64_t sequence = exposures->sequences[index];
	exposures->of[index] = of;
	exposures->sequences[index] = sequence == 0 ? 2 : sequence + 1;
	shared_store_u64(&line->key, key);
	shared_store_u64(&line->address, address);
	shared_store_u64(&line->length, part->length);
	shared_store_u64(&line->offset, part->offset);
	shared_store_u32(&line->slot, part->slot);
	shared_store_u32(&line->epoch, part->epoch);
	shared_store_u32(&line->access, access);
	shared_release_u64(&line->sequence, exposures->sequences[index]);
	shared_release_u64(&header->exposed, ++exposures->published);
}

void exposure_withdraw(struct exposures *exposures, const struct member *self, const void *of)
{
	struct section_header *header = section_header(self->region, self->slot);

	for (uint32_t index = 0; index < REGION_EXPOSURES; index++) {
		if (exposures->of[index] == NULL || (of != NULL && exposures->of[index] != of))
			continue;
		exposures->of[index] = NULL;
		exposures->sequences[index]++;
		if (member_is_joined(self))
			shared_store_u64(&header->exposures[index].sequence, exposures->sequences[index]);
	}
	/* Order these stores before the stores that use the lines again. */
	shared_fence_stores();
}

/* ---- the peers' side ---- */

/*
 * Load each word of a line once. Returns false if the line changed meanwhile, or exposes another
 * key.
 */
static bool read_line(const struct exposure_line *line, uint64_t sequence, uint64_t key,
		      struct exposed *known, uint64_t *offset)
{
	if (shared_load_u64(&line->key) != key)
		return false;
	*known = (struct exposed){
		.key = key,
		.word = &line->sequence,
		.value = sequence,
		.address = shared_load_u64(&line->address),
		.length = shared_load_u64(&line->length),
		.access = shared_load_u32(&line->access),
		.slot = shared_load_u32(&line->slot),
		.epoch = shared_load_u32(&line->epoch),
	};
	*offset = shared_load_u64(&line->offset);
	shared_fence_loads();
	return shared_load_u64(&line->sequence) == sequence;
}

/* Did one process write the sections in `slot` and in `other`? */
static bool same_process(const struct region *region, uint32_t slot, uint32_t other)
{
	uint64_t process = shared_load_u64(&section_header(region, slot)->process);

	return process != 0 && shared_load_u64(&section_header(region, other)->process) == process;
}

/*
 * Does the exposure lie in a heap of the process of the member in `slot`? If the member of that
 * heap is gone, sets `gone`: that is no fault of the member in `slot`.
 */
static bool can_be(const struct region *region, uint32_t slot, uint64_t offset, struct exposed *known,
		   bool *gone)
{
	if (known->slot >= region->members || known->epoch == 0 || known->length == 0 ||
	    known->length > UINT64_MAX - known->address ||
	    (known->access & ~(EXPOSED_TO_READ | EXPOSED_TO_WRITE)) != 0)
		return false;
	known->bytes = transfer_view(region, known->slot, offset, known->length);
	if (known->bytes == NULL)
		return false;
	*gone = !member_is_intact(region, known->slot, known->epoch);
	if (*gone)
		return true;
	bool same = same_process(region, slot, known->slot);
	*gone = !member_is_intact(region, known->slot, known->epoch);
	return *gone || same;
}

bool exposure_find(const struct region *region, uint32_t slot, uint32_t epoch, uint64_t key,
		   struct exposed *known)
{
	const struct section_header *header = section_header(region, slot);
	/*
	 * Loaded before the lines: a publication that this search misses increments the counter
	 * afterwards.
	 */
	uint64_t exposed = shared_acquire_u64(&header->exposed);
	bool gone = false;

	for (uint32_t index = 0; index < REGION_EXPOSURES; index++) {
		const struct exposure_line *line = &header->exposures[index];
		uint64_t sequence = shared_acquire_u64(&line->sequence);
		uint64_t offset = 0;
		if (sequence == 0)
			break;
		if ((sequence & 1) != 0 || !read_line(line, sequence, key, known, &offset))
			continue;
		bool good = can_be(region, slot, offset, known, &gone);
		/* If a successor wrote these words, the member is not at fault. */
		bool intact = member_is_intact(region, slot, epoch);
		if (!good || gone || !intact)
			known->word = NULL;
		return good || !intact;
	}
	*known = (struct exposed){.key = key, .word = &header->exposed, .value = exposed};
	if (!member_is_intact(region, slot, epoch))
		known->word = NULL;
	return true;
}
