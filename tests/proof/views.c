/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * views.c - memory that a peer names by offset and length lies in the peer's section, or there is no view of
 * it: in a ring, a chunk, a heap, an exposure. Lengths are taken one by one, because Eva knows no relation
 * between two words: all lengths in a section small enough to try each, and all longer lengths at once.
 */
#include "proto/messenger.h"
#include "region/exposure.h"

#define MEMBERS 2U
#define SECTION 160U
#define HEAP 64U

static unsigned char memory[MEMBERS * SECTION];
static const struct region region = {
	.base = memory, .section_bytes = SECTION, .heap_bytes = HEAP, .members = MEMBERS};
unsigned char touched;

static void touch(const shared_bytes *view, uint64_t length)
{
	if (view == NULL || length == 0)
		return;
	touched = view[0].hidden;
	touched = view[length - 1].hidden;
}

static void look(uint64_t length)
{
	uint32_t slot = any_u32;
	struct msg_peer from = {0};
	struct exposed known = {.bytes = (shared_bytes *)(void *)memory, .length = SECTION};

	if (slot >= MEMBERS)
		return;
	touch(section_view(&region, 1, any_u64, length), length);
	touch(transfer_view(&region, 1, any_u64, length), length);
	from.peer.section = (shared_bytes *)(void *)memory;
	from.peer.section_bytes = sizeof(memory);
	touch(transport_view(&from.peer, any_u64, length), length);
	touch(chunk_view(&from, any_u32, any_u32, length), length);
	known.address = any_u64;
	known.access = any_u32;
	touch(exposure_view(&known, any_u64, length, any_u32), length);
}

void prove(void)
{
	//@ loop unroll 1000;
	for (uint64_t length = 0; length <= sizeof(memory) + 1; length++)
		look(length);
	uint64_t longer = any_u64;
	if (longer > sizeof(memory))
		look(longer);
}
