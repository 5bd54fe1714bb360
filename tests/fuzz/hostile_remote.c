/* SPDX-License-Identifier: BSD-3-Clause */
/* hostile_remote.c - the hostile member's requests, and its answers to the victim's. */
#include "fuzz/fuzz.h"

/* Within the victim's memory, at its end, or anywhere. */
static uint64_t take_address(struct fuzz_input *input, uint8_t style)
{
	uint64_t address = take_u16(input);

	if (style & 32)
		return REACHABLE_BYTES - address % 16;
	return style & 64 ? address % 64 * 8 : address << take_u8(input) % 64;
}

static uint64_t take_atomic(struct fuzz_input *input)
{
	uint64_t count = take_u16(input) % 600;
	uint64_t datatype = take_u8(input) % 18;
	uint64_t operation = take_u8(input) % 22;
	uint64_t form = take_u8(input) % 4;

	return count | datatype << 16 | operation << 24 | form << 32;
}

/* The number of a request that the victim may wait for an answer to. */
static uint64_t take_sequence(struct fuzz *fuzz)
{
	const struct peer *peer = fuzz->messenger->path->peers[HOSTILE];
	uint8_t choice = take_u8(&fuzz->input);

	if (peer == NULL || choice & 128)
		return choice;
	return ((const struct correspondent *)(const void *)peer)->remote.answered + choice % 4;
}

uint32_t hostile_remote(struct fuzz *fuzz, uint8_t style, uint64_t place, uint64_t *word, uint64_t payload[6])
{
	static const uint32_t errors[] = {0, FI_EKEYREJECTED, FI_EACCES, FI_EINVAL, FI_ENOMEM, 1};
	struct fuzz_input *input = &fuzz->input;
	uint32_t kind = WIRE_WRITE + take_u8(input) % 9;

	switch (kind) {
	case WIRE_WRITE:
		take_bytes(input, payload, 6 * sizeof(*payload));
		payload[0] = take_address(input, style);
		break;
	case WIRE_WRITE_CHUNK:
		payload[0] = take_address(input, style);
		payload[1] = style & 128 ? take_u32(input) : 0;
		payload[3] = place;
		break;
	case WIRE_READ:
		payload[0] = take_address(input, style);
		break;
	case WIRE_ATOMIC:
	case WIRE_ATOMIC_CHUNK:
		take_bytes(input, payload, 6 * sizeof(*payload));
		payload[0] = take_address(input, style);
		payload[1] = take_atomic(input);
		if (kind == WIRE_ATOMIC_CHUNK)
			payload[2] = place;
		break;
	case WIRE_REPLY_CHUNK:
		payload[0] = place;
		*word = take_sequence(fuzz);
		break;
	case WIRE_DONE:
		payload[0] = errors[take_u8(input) % 6];
		*word = take_sequence(fuzz);
		break;
	default: /* WIRE_REPLY, and what is no kind */
		*word = take_sequence(fuzz);
		break;
	}
	return kind;
}
