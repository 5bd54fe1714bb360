/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints in several regions: no member is taken for another, whatever the sections contain. */
#include "regions.h"

#include <string.h>

static void test_two_that_say_they_are_one(void **state)
{
	(void)state;
	open_endpoints("2", "12", "2");
	forge(C, B, '2');
	assert_int_equal(region_between(A, B), '0');
	assert_non_null(strstr(said, "claim to be the same endpoint"));
	assert_non_null(strstr(said, files[1]));
	/* The member whose identity was claimed does not use the region for others, either. */
	said[0] = '\0';
	assert_int_equal(region_between(B, A), '0');
	assert_non_null(strstr(said, "claim to be the same endpoint"));
	talk_of_all(A, B);
	close_endpoints();
}

/* In the first region of both, no member can pose as another in its own section. */
static void test_a_liar_where_two_are_not_at_home(void **state)
{
	(void)state;
	open_endpoints("32", "312", "2");
	forge(C, B, '2');
	assert_int_equal(region_between(A, B), '3');
	assert_int_equal(region_between(B, A), '3');
	close_endpoints();
	/* Not even in the region that the address names: the liar has its own slot and epoch there. */
	open_endpoints("2", "1", "12");
	forge(C, B, '1');
	assert_int_equal(region_between(A, B), '0');
	close_endpoints();
}

static void test_each_word_must_agree(void **state)
{
	(void)state;
	open_endpoints("2", "12", "2");
	struct section_header *header = section_of(B, '2');
	shared_u64 *words[] = {&header->nonce, &header->home[0], &header->home[1]};
	shared_u32 *halves[] = {&header->home_slot, &header->home_epoch};
	shared_u64 *claim = &region_slot(domains[A].regions[0], member_in(B, '2')->slot)->claim;
	struct address address = address_of(B);
	uint32_t epoch = 0;

	for (int i = 0; i < 3; i++) {
		uint64_t word = shared_load_u64(words[i]);
		shared_store_u64(words[i], word + 1);
		assert_int_equal(domain_resolve(&domains[A], &address, &epoch), RESOLVE_NONE);
		shared_store_u64(words[i], word);
	}
	for (int i = 0; i < 2; i++) {
		uint32_t half = shared_load_u32(halves[i]);
		shared_store_u32(halves[i], half + 1);
		assert_int_equal(domain_resolve(&domains[A], &address, &epoch), RESOLVE_NONE);
		shared_store_u32(halves[i], half);
	}
	/* The slot is free, or a member is just joining. */
	uint64_t whose = shared_load_u64(claim);
	shared_store_u64(claim, 0);
	assert_int_equal(domain_resolve(&domains[A], &address, &epoch), RESOLVE_NONE);
	shared_store_u64(claim, (whose & ~UINT64_C(3)) | SLOT_CLAIMED);
	assert_int_equal(domain_resolve(&domains[A], &address, &epoch), RESOLVE_NONE);
	shared_store_u64(claim, whose);
	/*
	 * An address without an epoch belongs to no member. A section of a member whose first region this is
	 * says 0.
	 */
	struct address none = address;
	none.epoch = 0;
	shared_store_u32(&header->home_epoch, 0);
	assert_int_equal(domain_resolve(&domains[A], &none, &epoch), RESOLVE_NONE);
	shared_store_u32(&header->home_epoch, address.epoch);
	assert_int_equal(domain_resolve(&domains[A], &address, &epoch), member_in(B, '2')->slot);
	assert_int_equal(epoch, member_in(B, '2')->epoch);
	talk_of_all(A, B);
	close_endpoints();
}

/* Whatever the words are: each slot is read once, and only three answers are possible. */
static void test_words_at_random(void **state)
{
	uint64_t random = 1;

	(void)state;
	open_endpoints("2", "12", "2");
	struct address address = address_of(B);
	struct section_header *header = section_of(C, '2');
	for (uint32_t i = 0; i < 20000; i++) {
		uint32_t epoch = 0;
		shared_store_u64(&header->nonce,
				 random_below(&random, 2) ? address.nonce : next_random(&random));
		shared_store_u64(&header->home[0], random_below(&random, 2) ? 7 : next_random(&random));
		shared_store_u64(&header->home[1], random_below(&random, 3));
		shared_store_u32(&header->home_slot, (uint32_t)random_below(&random, MEMBERS + 1));
		shared_store_u32(&header->home_epoch, (uint32_t)random_below(&random, 3));
		uint32_t slot = domain_resolve(&domains[A], &address, &epoch);
		assert_true(slot == RESOLVE_NONE || slot == member_in(B, '2')->slot);
	}
	close_endpoints();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_two_that_say_they_are_one),
		cmocka_unit_test(test_a_liar_where_two_are_not_at_home),
		cmocka_unit_test(test_each_word_must_agree),
		cmocka_unit_test(test_words_at_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
