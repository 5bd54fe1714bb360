/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses as text: a written address can be read again, and any other text is refused. */
#include "world.h"

#include <stdlib.h>

#include "api/provider.h"

#define GOOD "vicinal://000102030405060708090a0b0c0d0e0f/511/4294967295/fedcba9876543210"

static void test_an_address_survives_being_text(void **state)
{
	uint64_t seed = 11;

	(void)state;
	for (int i = 0; i < 10000; i++) {
		struct address written = {
			.version = ADDRESS_FORMAT_VERSION,
			.slot = (uint16_t)random_below(&seed, REGION_MEMBERS_MAX),
			.epoch = (uint32_t)next_random(&seed) >> random_below(&seed, 32),
			.nonce = next_random(&seed) >> random_below(&seed, 64),
			.region = {next_random(&seed) >> random_below(&seed, 64), next_random(&seed)},
		};
		struct address read;
		char text[128];
		int length = address_to_text(&written, text, sizeof(text));
		assert_int_equal(length, strlen(text));
		assert_true(address_from_text(text, &read));
		assert_memory_equal(&written, &read, sizeof(read));
	}
}

static void test_the_text_is_as_documented(void **state)
{
	const struct address address = {
		.version = ADDRESS_FORMAT_VERSION,
		.slot = 511,
		.epoch = UINT32_MAX,
		.nonce = UINT64_C(0xfedcba9876543210),
		.region = {UINT64_C(0x0001020304050607), UINT64_C(0x08090a0b0c0d0e0f)},
	};
	char text[128];

	(void)state;
	assert_int_equal(address_to_text(&address, text, sizeof(text)), strlen(GOOD));
	assert_string_equal(text, GOOD);
}

static void test_other_texts_are_no_addresses(void **state)
{
	static const char *const texts[] = {
		"",
		"vicinal://",
		"node0",
		"10.0.0.1",
		"vicinal://000102030405060708090a0b0c0d0e0f/511/1",
		"vicinal://000102030405060708090a0b0c0d0e0f/512/1/0",
		"vicinal://000102030405060708090a0b0c0d0e0f/70000/1/0",
		"vicinal://000102030405060708090a0b0c0d0e0f/-1/1/0",
		"vicinal://000102030405060708090a0b0c0d0e0g/1/1/0",
		GOOD "/",
		GOOD "0",
		GOOD " ",
		" x" GOOD,
		"Vicinal" GOOD,
	};
	struct address address;

	(void)state;
	assert_true(address_from_text(GOOD, &address));
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (address_from_text(texts[i], &address))
			fail_msg("this was read as an address: %s", texts[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_an_address_survives_being_text),
		cmocka_unit_test(test_the_text_is_as_documented),
		cmocka_unit_test(test_other_texts_are_no_addresses),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
