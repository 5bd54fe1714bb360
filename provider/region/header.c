/* SPDX-License-Identifier: BSD-3-Clause */
/* header.c - checks a region's header, and writes a new one. */
#include "region/region.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

int region_fail(struct region_error *error, int code, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(error->text, sizeof(error->text), format, arguments);
	va_end(arguments);
	return code;
}

/* Both lengths come from the header, so `heap_bytes` may be more than `section_bytes`. */
static bool section_is_possible(uint32_t members, uint64_t section_bytes, uint64_t heap_bytes)
{
	if (heap_bytes > REGION_HEAP_MAX || heap_bytes > section_bytes)
		return false;
	uint64_t rest = section_bytes - heap_bytes;

	return rest >= REGION_SECTION_MIN && rest <= REGION_SECTION_MAX &&
	       rest >= SECTION_BYTES_MIN(members) && section_bytes % REGION_PAGE == 0 &&
	       heap_bytes % REGION_PAGE == 0;
}

int region_check_header(const struct region_header *header, size_t bytes, struct region *region,
			struct region_error *error)
{
	if (bytes < sizeof(*header))
		return region_fail(error, -ENODATA,
				   "it has %zu bytes, too few for a region: create it with "
				   "'vicinal region create'",
				   bytes);

	/* Pairs with the creator's release store: the fields below are complete. */
	uint64_t magic = shared_acquire_u64(&header->magic);
	uint32_t version = shared_load_u32(&header->version);
	uint32_t members = shared_load_u32(&header->members);
	uint64_t region_bytes = shared_load_u64(&header->region_bytes);
	uint64_t section_bytes = shared_load_u64(&header->section_bytes);
	uint64_t heap_bytes = shared_load_u64(&header->heap_bytes);
	uint64_t sections_offset = shared_load_u64(&header->sections_offset);
	uint32_t sparse_heaps = shared_load_u32(&header->sparse_heaps);

	if (magic != REGION_MAGIC)
		return region_fail(
			error, -ENODATA,
			"it does not begin with a region's magic: create it with 'vicinal region create'");
	if (version != REGION_VERSION)
		return region_fail(error, -EPROTONOSUPPORT,
				   "its format is version %u and this provider knows version %u: install the "
				   "Vicinal that created it, or create it again",
				   version, REGION_VERSION);
	if (members < REGION_MEMBERS_MIN || members > REGION_MEMBERS_MAX)
		return region_fail(error, -EINVAL,
				   "its header says %u member slots, %u to %u are possible: create it again",
				   members, REGION_MEMBERS_MIN, REGION_MEMBERS_MAX);
	if (!section_is_possible(members, section_bytes, heap_bytes))
		return region_fail(error, -EINVAL,
				   "its header says sections of %llu bytes, %llu of them heap, which is not "
				   "possible: create it again",
				   (unsigned long long)section_bytes, (unsigned long long)heap_bytes);
	if (sparse_heaps > 1)
		return region_fail(error, -EINVAL,
				   "its header says %u where sparse heaps are 0 or 1: create it again",
				   sparse_heaps);
	if (sections_offset != REGION_SECTIONS_OFFSET(members) ||
	    region_bytes != region_size(members, section_bytes))
		return region_fail(error, -EINVAL, "its header contradicts itself: create it again");
	if (region_bytes > bytes)
		return region_fail(
			error, -EINVAL,
			"it has %zu bytes where its header says %llu, so it was truncated: create it again",
			bytes, (unsigned long long)region_bytes);

	region->members = members;
	region->section_bytes = section_bytes;
	region->heap_bytes = heap_bytes;
	region->sections_offset = sections_offset;
	region->sparse_heaps = sparse_heaps == 1;
	region->id[0] = shared_load_u64(&header->id[0]);
	region->id[1] = shared_load_u64(&header->id[1]);
	return 0;
}

int region_format(void *base, size_t bytes, uint32_t members, uint64_t section_bytes, const uint64_t id[2])
{
	return region_format_heaps(base, bytes, members, section_bytes, 0, id);
}

int region_format_heaps(void *base, size_t bytes, uint32_t members, uint64_t section_bytes,
			uint64_t heap_bytes, const uint64_t id[2])
{
	struct region_header *header = base;

	if (members < REGION_MEMBERS_MIN || members > REGION_MEMBERS_MAX ||
	    !section_is_possible(members, section_bytes, heap_bytes) ||
	    bytes < region_size(members, section_bytes))
		return -EINVAL;
	shared_store_u32(&header->version, REGION_VERSION);
	shared_store_u32(&header->members, members);
	shared_store_u64(&header->region_bytes, region_size(members, section_bytes));
	shared_store_u64(&header->id[0], id[0]);
	shared_store_u64(&header->id[1], id[1]);
	shared_store_u64(&header->section_bytes, section_bytes);
	shared_store_u64(&header->heap_bytes, heap_bytes);
	shared_store_u64(&header->sections_offset, REGION_SECTIONS_OFFSET(members));
	/* Pairs with the acquire load in region_check_header(). */
	shared_release_u64(&header->magic, REGION_MAGIC);
	return 0;
}
