/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_input.h - takes numbers from the front of a fuzzer's input, and zeros when it is used up. */
#ifndef VICINAL_TESTS_FUZZ_INPUT_H
#define VICINAL_TESTS_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct fuzz_input {
	const uint8_t *bytes;
	size_t size;
};

static inline void take_bytes(struct fuzz_input *input, void *to, size_t length)
{
	size_t available = length < input->size ? length : input->size;

	memset(to, 0, length);
	if (available > 0)
		memcpy(to, input->bytes, available);
	input->bytes += available;
	input->size -= available;
}

static inline uint8_t take_u8(struct fuzz_input *input)
{
	uint8_t value = 0;

	take_bytes(input, &value, sizeof(value));
	return value;
}

static inline uint16_t take_u16(struct fuzz_input *input)
{
	uint16_t value = 0;

	take_bytes(input, &value, sizeof(value));
	return value;
}

static inline uint32_t take_u32(struct fuzz_input *input)
{
	uint32_t value = 0;

	take_bytes(input, &value, sizeof(value));
	return value;
}

static inline uint64_t take_u64(struct fuzz_input *input)
{
	uint64_t value = 0;

	take_bytes(input, &value, sizeof(value));
	return value;
}

#endif
