/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exposure.c - exposure_find() in a region in which every load of a word returns any value, as a peer may
 * write it.
 */
#include "region/exposure.h"

#define MEMBERS 2U
#define HEAP 8192U
#define SECTION (SECTION_BYTES_MIN(MEMBERS) / REGION_PAGE * REGION_PAGE + REGION_PAGE + HEAP)

static unsigned char memory[REGION_SECTIONS_OFFSET(MEMBERS) + MEMBERS * SECTION];
static const struct region region = {.base = memory,
				     .bytes = sizeof(memory),
				     .section_bytes = SECTION,
				     .heap_bytes = HEAP,
				     .sections_offset = REGION_SECTIONS_OFFSET(MEMBERS),
				     .members = MEMBERS};
unsigned char touched;

void prove(void)
{
	uint32_t slot = any_u32;
	struct exposed known = {0};

	/* A slot of a peer that was met. */
	if (slot >= MEMBERS)
		return;
	if (!exposure_find(&region, slot, any_u32, any_u64, &known))
		return;
	(void)exposure_is_valid(&known);
	if (known.bytes != NULL)
		touched = known.bytes->hidden;
}
