/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies between application buffers in pieces and the region: at every boundary, and without touching a byte
 * beside.
 */
#include "world.h"

#include <stdlib.h>

#define GUARD 16U
#define LONGEST 24U

static void test_small_copies_of_every_length(void **state)
{
	(void)state;
	for (size_t length = 0; length <= 64; length++)
		for (size_t from_offset = 0; from_offset < 8; from_offset++)
			for (size_t to_offset = 0; to_offset < 8; to_offset++) {
				unsigned char source[GUARD + 64 + GUARD];
				unsigned char target[GUARD + 64 + GUARD];
				fill_bytes(source, sizeof(source), length);
				memset(target, 0xee, sizeof(target));
				copy_small(target + to_offset, source + from_offset, length);
				assert_memory_equal(target + to_offset, source + from_offset, length);
				for (size_t i = 0; i < sizeof(target); i++)
					if (i < to_offset || i >= to_offset + length)
						assert_int_equal(target[i], 0xee);
			}
}

/*
 * The same between blocks of exactly the copied length, so that a sanitizer sees reads and writes beside
 * them.
 */
static void test_small_copies_touch_nothing_beside(void **state)
{
	(void)state;
	for (size_t length = 1; length <= 64; length++) {
		unsigned char *source = malloc(length);
		unsigned char *target = malloc(length);
		assert_non_null(source);
		assert_non_null(target);
		fill_bytes(source, length, length);
		copy_small_out((shared_bytes *)target, source, length);
		assert_bytes(target, length, length);
		memset(target, 0, length);
		copy_small_in(target, (const shared_bytes *)source, length);
		assert_bytes(target, length, length);
		free(source);
		free(target);
	}
}

/* A buffer of up to four pieces, each a block of its own. */
static void open_pieces(struct buffer *buffer, const size_t lengths[BUFFER_PIECES], size_t count)
{
	struct iovec pieces[BUFFER_PIECES];

	for (size_t i = 0; i < count; i++) {
		pieces[i] = (struct iovec){malloc(lengths[i] > 0 ? lengths[i] : 1), lengths[i]};
		assert_non_null(pieces[i].iov_base);
	}
	buffer_open(buffer, pieces, count);
}

static void close_pieces(const struct buffer *buffer)
{
	for (size_t i = 0; i < buffer->count; i++)
		free(buffer->pieces[i].iov_base);
}

/* Concatenate all pieces. */
static void join(const struct buffer *buffer, unsigned char *bytes)
{
	for (size_t i = 0; i < buffer->count; i++) {
		memcpy(bytes, buffer->pieces[i].iov_base, buffer->pieces[i].iov_len);
		bytes += buffer->pieces[i].iov_len;
	}
}

static void set_all(const struct buffer *buffer, int value)
{
	for (size_t i = 0; i < buffer->count; i++)
		memset(buffer->pieces[i].iov_base, value, buffer->pieces[i].iov_len);
}

static void check_scatter(const struct buffer *buffer, size_t offset, size_t length)
{
	unsigned char source[2 * LONGEST];
	unsigned char expected[LONGEST];
	unsigned char found[LONGEST];
	size_t fits = offset >= buffer->length ? 0 : buffer->length - offset;

	if (fits > length)
		fits = length;
	fill_bytes(source, sizeof(source), offset);
	memset(expected, 0xcc, sizeof(expected));
	memcpy(expected + (offset < LONGEST ? offset : 0), source, fits);
	set_all(buffer, 0xcc);
	assert_int_equal(buffer_from_region(buffer, offset, (const shared_bytes *)source, length), fits);
	join(buffer, found);
	assert_memory_equal(found, expected, buffer->length);
	set_all(buffer, 0xcc);
	assert_int_equal(buffer_from_memory(buffer, offset, source, length), fits);
	join(buffer, found);
	assert_memory_equal(found, expected, buffer->length);
}

static void check_gather(const struct buffer *buffer, size_t offset, size_t length)
{
	unsigned char all[LONGEST];
	unsigned char gathered[LONGEST + 2 * GUARD];
	size_t seed = offset + length;

	for (size_t i = 0; i < buffer->count; i++)
		fill_bytes(buffer->pieces[i].iov_base, buffer->pieces[i].iov_len, seed + i);
	join(buffer, all);
	memset(gathered, 0xdd, sizeof(gathered));
	buffer_to_region(buffer, offset, (shared_bytes *)gathered + GUARD, length);
	assert_memory_equal(gathered + GUARD, all + offset, length);
	for (size_t i = 0; i < sizeof(gathered); i++)
		if (i < GUARD || i >= GUARD + length)
			assert_int_equal(gathered[i], 0xdd);
}

static void test_scatter_and_gather_at_every_boundary(void **state)
{
	static const size_t shapes[][BUFFER_PIECES] = {
		{0, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}, {24, 0, 0, 0}, {0, 0, 0, 24}, {6, 6, 6, 6},
		{1, 1, 1, 1}, {7, 0, 9, 1}, {0, 8, 0, 8}, {16, 8, 0, 0}, {3, 5, 7, 9},
	};

	(void)state;
	for (size_t shape = 0; shape < sizeof(shapes) / sizeof(shapes[0]); shape++)
		for (size_t count = 0; count <= BUFFER_PIECES; count++) {
			struct buffer buffer;
			open_pieces(&buffer, shapes[shape], count);
			for (size_t offset = 0; offset <= LONGEST + 2; offset++)
				for (size_t length = 0; length <= LONGEST + 2; length++) {
					check_scatter(&buffer, offset, length);
					if (offset + length <= buffer.length)
						check_gather(&buffer, offset, length);
				}
			close_pieces(&buffer);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_small_copies_of_every_length),
		cmocka_unit_test(test_small_copies_touch_nothing_beside),
		cmocka_unit_test(test_scatter_and_gather_at_every_boundary),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
