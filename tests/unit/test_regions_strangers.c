/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints in several regions: who calls before its address is known is the same peer afterwards. */
#include "regions.h"

/* It is the same peer before and after its address is known. */
static void test_a_stranger_is_told_of_later(void **state)
{
	static const char *const lists[][2] = {{"12", "21"}, {"1", "21"}, {"12", "2"}, {"12", "12"}};

	(void)state;
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		uint64_t word = 99;
		open_endpoints(lists[i][0], lists[i][1], "3");
		assert_int_equal(fake_send(&world.nodes[B], meet(B, A), &word, 8, 5), 0);
		fake_settle(&world);
		word = 0;
		assert_int_equal(fake_receive(&world.nodes[A], MATCH_ANY_SOURCE, &word, 8, 5), 0);
		struct completion got = fake_next(&world.nodes[A].node.receives);
		assert_int_equal(word, 99);
		const struct peer *stranger = path_of(A)->peers[(uint32_t)got.source];
		assert_ptr_equal(stranger, &meet(A, B)->peer);
		assert_int_equal(correspondent_source(meet(A, B)), got.source);
		talk_of_all(A, B);
		close_endpoints();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_stranger_is_told_of_later),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
