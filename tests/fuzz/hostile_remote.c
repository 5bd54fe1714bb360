/* SPDX-License-Identifier: BSD-3-Clause */
/* hostile_remote.c - the hostile member's requests, and its answers to the victim's requests. */
#include "fuzz/fuzz.h"

/* Unusual fields of a request. */
enum unusual {
	FROM_HIGH = 1,    /* its address counts from REACHABLE_HIGH */
	WITH_REST = 2,    /* more of its range is announced */
	RIGHT_LENGTH = 4, /* its length is that of its operands */
};

/* Within the victim's memory, at its end, or anywhere. */
static uint64_t take_address(struct fuzz_input *input, uint8_t style, uint8_t unusual)
{
	uint64_t address = take_u16(input);
	uint64_t first = unusual & FROM_HIGH ? REACHABLE_HIGH : 0;

	if (style & 32)
		return first + REACHABLE_BYTES - address % 16;
	return first + (style & 64 ? address % 64 * 8 : address << take_u8(input) % 64);
}

/* One of the valid values, or of a few more; or any value. */
static uint64_t take_one_of(struct fuzz_input *input, uint8_t count)
{
	uint8_t choice = take_u8(input);

	return choice < 224 ? (uint64_t)(choice % count) : choice;
}

/* Count, datatype, operation and form. `length` gets the bytes of operands that they need. */
static uint64_t take_atomic(struct fuzz_input *input, uint32_t *length)
{
	uint64_t count = take_u16(input);
	uint64_t datatype = take_one_of(input, FI_UINT128 + 2);
	uint64_t operation = take_one_of(input, FI_ATOMIC_OP_LAST + 2);
	uint64_t form = take_one_of(input, ATOMIC_FORMS + 1);

	count = count < 0xf000 ? count % 600 : count;
	*length = (uint32_t)(count * atomic_element_bytes((uint32_t)datatype)) << (form == ATOMIC_COMPARE);
	if (operation == FI_ATOMIC_READ)
		*length = 0;
	return count | datatype << 16 | operation << 24 | form << 32;
}

/* The number of a request for whose answer the victim may wait. */
static uint64_t take_sequence(struct fuzz *fuzz)
{
	const struct peer *peer = fuzz->messenger->transport->peers[HOSTILE];
	uint8_t choice = take_u8(&fuzz->input);

	if (peer == NULL || choice & 128)
		return choice;
	return ((const struct msg_peer *)(const void *)peer)->remote.answered + choice % 4;
}

uint32_t hostile_remote(struct fuzz *fuzz, uint8_t style, uint64_t offset, uint64_t *word,
			uint64_t payload[6], uint32_t *length)
{
	static const uint32_t errors[] = {0, FI_EKEYREJECTED, FI_EACCES,     FI_EINVAL,
					  1, FI_ENOMEM,       FI_EOPNOTSUPP, UINT32_MAX};
	struct fuzz_input *input = &fuzz->input;
	uint32_t kind = WIRE_WRITE + take_u8(input) % 9;
	uint8_t unusual = take_u8(input);
	uint32_t asked = 0;

	switch (kind) {
	case WIRE_WRITE:
		take_bytes(input, payload, 6 * sizeof(*payload));
		payload[0] = take_address(input, style, unusual);
		break;
	case WIRE_WRITE_CHUNK:
		payload[0] = take_address(input, style, unusual);
		payload[1] = unusual & WITH_REST ? (uint64_t)take_u32(input) << take_u8(input) % 64 : 0;
		payload[3] = offset;
		break;
	case WIRE_READ:
		payload[0] = take_address(input, style, unusual);
		break;
	case WIRE_ATOMIC:
	case WIRE_ATOMIC_CHUNK:
		take_bytes(input, payload, 6 * sizeof(*payload));
		payload[0] = take_address(input, style, unusual);
		payload[1] = take_atomic(input, &asked);
		if (unusual & RIGHT_LENGTH)
			*length = asked;
		if (kind == WIRE_ATOMIC_CHUNK)
			payload[2] = offset;
		break;
	case WIRE_REPLY_CHUNK:
		payload[0] = offset;
		*word = take_sequence(fuzz);
		break;
	case WIRE_DONE:
		payload[0] = errors[take_u8(input) % 8];
		*word = take_sequence(fuzz);
		break;
	default: /* WIRE_REPLY, and invalid kinds */
		*word = take_sequence(fuzz);
		break;
	}
	return kind;
}
