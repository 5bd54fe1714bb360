/* SPDX-License-Identifier: BSD-3-Clause */
/* The layout in numbers, as docs/reference/region-format.md gives it: a change must be intended. */
#include "world.h"

static void test_fields_lie_where_the_format_says(void **state)
{
	(void)state;
	assert_int_equal(REGION_MAGIC, UINT64_C(0x314c414e49434956));
	assert_memory_equal(&(uint64_t){REGION_MAGIC}, "VICINAL1", 8);
	assert_int_equal(offsetof(struct region_header, magic), 0);
	assert_int_equal(offsetof(struct region_header, version), 8);
	assert_int_equal(offsetof(struct region_header, members), 12);
	assert_int_equal(offsetof(struct region_header, region_bytes), 16);
	assert_int_equal(offsetof(struct region_header, id), 24);
	assert_int_equal(offsetof(struct region_header, section_bytes), 40);
	assert_int_equal(offsetof(struct region_header, sections_offset), 48);
	assert_int_equal(offsetof(struct region_header, created), 56);
	assert_int_equal(offsetof(struct region_header, heap_bytes), 128);
	assert_int_equal(offsetof(struct region_header, sparse_heaps), 136);
	assert_int_equal(offsetof(struct section_header, nonce), 0);
	assert_int_equal(offsetof(struct section_header, epoch), 8);
	assert_int_equal(offsetof(struct section_header, liveness), 12);
	assert_int_equal(offsetof(struct section_header, rank), 16);
	assert_int_equal(offsetof(struct section_header, job), 60);
	assert_int_equal(offsetof(struct section_header, pid), 20);
	assert_int_equal(offsetof(struct section_header, endpoint), 24);
	assert_int_equal(offsetof(struct section_header, arena_used), 28);
	assert_int_equal(offsetof(struct section_header, heartbeat), 64);
	assert_int_equal(offsetof(struct section_header, hostname), 128);
	assert_int_equal(offsetof(struct section_header, active), 192);
	assert_int_equal(offsetof(struct section_header, sleeping), 256);
	assert_int_equal(offsetof(struct section_header, membarrier), 260);
	assert_int_equal(offsetof(struct section_header, process), 264);
	assert_int_equal(offsetof(struct section_header, interrupt), 272);
	assert_int_equal(offsetof(struct section_header, exposed), 320);
	assert_int_equal(offsetof(struct section_header, reaching), 384);
	assert_int_equal(offsetof(struct section_header, core), 448);
	assert_int_equal(offsetof(struct section_header, core_name), 452);
	assert_int_equal(offsetof(struct section_header, windows), 480);
	assert_int_equal(offsetof(struct section_header, exposures), 1024);
	assert_int_equal(offsetof(struct exposure_line, sequence), 0);
	assert_int_equal(offsetof(struct exposure_line, key), 8);
	assert_int_equal(offsetof(struct exposure_line, address), 16);
	assert_int_equal(offsetof(struct exposure_line, length), 24);
	assert_int_equal(offsetof(struct exposure_line, offset), 32);
	assert_int_equal(offsetof(struct exposure_line, slot), 40);
	assert_int_equal(offsetof(struct exposure_line, epoch), 44);
	assert_int_equal(offsetof(struct exposure_line, access), 48);
	assert_int_equal(offsetof(struct connection_line, id), 0);
	assert_int_equal(offsetof(struct connection_line, receiver_epoch), 4);
	assert_int_equal(offsetof(struct connection_line, ring), 8);
	assert_int_equal(offsetof(struct connection_line, slots), 16);
	assert_int_equal(offsetof(struct connection_line, route), 20);
	assert_int_equal(offsetof(struct connection_line, messages), 24);
	assert_int_equal(offsetof(struct connection_line, bytes), 32);
	assert_int_equal(offsetof(struct credit_line, consumed), 0);
	assert_int_equal(offsetof(struct credit_line, returned), 8);
	assert_int_equal(offsetof(struct transfer_line, id), 0);
	assert_int_equal(offsetof(struct transfer_line, claimed), 8);
	assert_int_equal(offsetof(struct transfer_line, done), 16);
	assert_int_equal(offsetof(struct transfer_line, offset), 24);
	assert_int_equal(offsetof(struct transfer_line, peer), 32);
	assert_int_equal(offsetof(struct network_line, nonce), 0);
	assert_int_equal(offsetof(struct network_line, messages), 8);
	assert_int_equal(offsetof(struct network_line, bytes), 16);
	assert_int_equal(offsetof(struct ring_slot, control), 0);
	assert_int_equal(offsetof(struct ring_slot, word), 8);
	assert_int_equal(offsetof(struct ring_slot, payload), 16);
}

static void test_tables_of_eight_members(void **state)
{
	(void)state;
	assert_int_equal(REGION_VERDICTS_OFFSET(8), 4096 + 8 * 64);
	assert_int_equal(REGION_SECTIONS_OFFSET(8), 8192);
	assert_int_equal(SECTION_CREDITS_OFFSET(8), 4096 + 64);
	assert_int_equal(SECTION_CONNECTIONS_OFFSET(8), 4096 + 64 + 8 * 64);
	assert_int_equal(SECTION_TRANSFERS_OFFSET(8), 4096 + 64 + 2 * 8 * 64);
	assert_int_equal(SECTION_NETWORK_OFFSET(8), 4096 + 64 + 2 * 8 * 64 + 128 * 64);
	assert_int_equal(SECTION_ARENA_OFFSET(8), 20480);
	assert_int_equal(region_size(8, 983040), 8192 + 8 * 983040);
}

/* For every number of members, tables do not overlap, lines are aligned to lines, and pages to pages. */
static void test_tables_do_not_overlap(void **state)
{
	(void)state;
	for (uint32_t members = REGION_MEMBERS_MIN; members <= REGION_MEMBERS_MAX; members++) {
		assert_true(REGION_SLOTS_OFFSET + members * sizeof(struct member_slot) <=
			    REGION_VERDICTS_OFFSET(members));
		assert_true(REGION_VERDICTS_OFFSET(members) + members * sizeof(struct member_verdict) <=
			    REGION_SECTIONS_OFFSET(members));
		assert_int_equal(REGION_SECTIONS_OFFSET(members) % REGION_PAGE, 0);
		assert_true(SECTION_DOORBELLS_OFFSET + members * sizeof(shared_u32) <=
			    SECTION_CREDITS_OFFSET(members));
		assert_int_equal(SECTION_CREDITS_OFFSET(members) % REGION_LINE, 0);
		assert_int_equal(SECTION_CONNECTIONS_OFFSET(members) % REGION_LINE, 0);
		assert_true(SECTION_CONNECTIONS_OFFSET(members) + members * sizeof(struct connection_line) <=
			    SECTION_TRANSFERS_OFFSET(members));
		assert_int_equal(SECTION_TRANSFERS_OFFSET(members) % REGION_LINE, 0);
		assert_true(SECTION_TRANSFERS_OFFSET(members) +
				    REGION_TRANSFERS * sizeof(struct transfer_line) <=
			    SECTION_NETWORK_OFFSET(members));
		assert_int_equal(SECTION_NETWORK_OFFSET(members) % REGION_LINE, 0);
		assert_true(SECTION_NETWORK_OFFSET(members) +
				    REGION_NETWORK_LINES * sizeof(struct network_line) <=
			    SECTION_ARENA_OFFSET(members));
		assert_int_equal(SECTION_ARENA_OFFSET(members) % REGION_PAGE, 0);
		assert_true(SECTION_ARENA_OFFSET(members) < SECTION_BYTES_MIN(members));
	}
}

static void test_a_view_never_leaves_its_section(void **state)
{
	struct region *region = world_region(3, REGION_SECTION_MIN);
	uint64_t bytes = region->section_bytes;

	(void)state;
	assert_ptr_equal(section_view(region, 1, 0, bytes), region_section(region, 1));
	assert_non_null(section_view(region, 1, bytes, 0));
	assert_non_null(section_view(region, 1, bytes - 1, 1));
	assert_null(section_view(region, 1, bytes, 1));
	assert_null(section_view(region, 1, bytes + 1, 0));
	assert_null(section_view(region, 1, 1, bytes));
	assert_null(section_view(region, 1, UINT64_MAX, 1));
	assert_null(section_view(region, 1, 1, UINT64_MAX));
	assert_null(section_view(region, 1, UINT64_MAX, UINT64_MAX));
	assert_ptr_equal(region_section(region, 2) + bytes, region->base + region->bytes);
	region_detach(region);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields_lie_where_the_format_says),
		cmocka_unit_test(test_tables_of_eight_members),
		cmocka_unit_test(test_tables_do_not_overlap),
		cmocka_unit_test(test_a_view_never_leaves_its_section),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
