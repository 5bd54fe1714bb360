/* SPDX-License-Identifier: BSD-3-Clause */
/* hostile.c - the member that writes anything: sometimes almost valid, sometimes not at all. */
#include "fuzz/fuzz.h"
#include "region/identity.h"

/* The offset of the heap in a section. */
#define HEAP_OFFSET ((uint64_t)REGION_SECTION_MIN)

void set_claim(const struct fuzz *fuzz, uint32_t slot, uint32_t epoch, uint32_t state)
{
	shared_store_u64(&region_slot(fuzz->region, slot)->claim, (uint64_t)epoch << 32 | state);
}

void hostile_join(struct fuzz *fuzz)
{
	struct section_header *header = section_header(fuzz->region, HOSTILE);

	fuzz->hostile_epoch++;
	shared_store_u64(&header->nonce, fuzz->hostile_epoch * UINT64_C(0x1234567));
	shared_store_u32(&header->liveness, LIVENESS_HEARTBEAT);
	set_claim(fuzz, HOSTILE, fuzz->hostile_epoch, SLOT_JOINED);
}

void hostile_ring_bell(const struct fuzz *fuzz)
{
	shared_u32 *bell = section_doorbell(fuzz->region, VICTIM, HOSTILE);

	shared_store_u32(bell, shared_load_u32(bell) + 1);
}

/* Offer a ring: a valid one, or one with fields from the input. */
void hostile_connect(struct fuzz *fuzz, bool good)
{
	struct connection_line *line = section_connection(fuzz->region, HOSTILE, VICTIM);
	uint32_t slots = RING_SLOTS_MIN << take_u8(&fuzz->input) % 3;
	uint64_t offset = SECTION_ARENA_OFFSET(MEMBERS);
	uint32_t id = fuzz->hostile_epoch * 2 + 1;
	uint32_t epoch = fuzz->messenger->transport->attachments[0].member->epoch;

	if (!good) {
		slots = take_u32(&fuzz->input);
		offset = take_u64(&fuzz->input);
		id = take_u8(&fuzz->input);
		epoch += take_u8(&fuzz->input) % 4 == 0;
	} else {
		memset(region_section(fuzz->region, HOSTILE) + offset, 0, slots * sizeof(struct ring_slot));
		fuzz->ring_offset = (uint32_t)offset;
		fuzz->ring_slots = slots;
		fuzz->ring_position = ring_first_position(id, (uint32_t)__builtin_ctz(slots));
	}
	shared_store_u32(&line->receiver_epoch, epoch);
	shared_store_u64(&line->ring, offset);
	shared_store_u32(&line->slots, slots);
	shared_store_u32(&line->id, id);
	hostile_ring_bell(fuzz);
}

/* The slot of the victim's ring to the hostile member, `back` slots before its position. */
static const struct ring_slot *victims_slot(const struct fuzz *fuzz, uint32_t back)
{
	const struct peer *peer = fuzz->messenger->transport->peers[HOSTILE];

	/* A peer that continues over the network without a connection before has no ring yet. */
	if (peer == NULL || !peer->sending || peer->out.slots == NULL)
		return NULL;
	return &peer->out.slots[(peer->out.position - 1 - back) & peer->out.mask];
}

/* An offset of bytes in the section: near its beginning, or near its end and beyond. */
static uint64_t take_offset(struct fuzz_input *input)
{
	uint64_t choice = take_u16(input);

	return choice & 0x8000 ? SECTION_BYTES - 0x7000 + (choice & 0x7fff) : choice;
}

/* Where the hostile member's ring goes on: behind its slots, or at the beginning of the arena. */
static uint32_t next_ring_offset(const struct fuzz *fuzz)
{
	uint32_t begin = (uint32_t)SECTION_ARENA_OFFSET(MEMBERS);
	uint32_t next = fuzz->ring_offset + fuzz->ring_slots * (uint32_t)sizeof(struct ring_slot);

	return next - begin < 0x8000 ? next : begin;
}

static void move_ring(struct fuzz *fuzz, uint32_t offset, uint32_t slots)
{
	struct ring_slot *memory = (struct ring_slot *)(void *)section_view(fuzz->region, HOSTILE, offset,
									    slots * sizeof(struct ring_slot));

	if (memory == NULL)
		return;
	ring_clear(memory, slots, fuzz->ring_position);
	fuzz->ring_offset = offset;
	fuzz->ring_slots = slots;
}

/*
 * Push a slot that looks valid at the victim's position. Words that only the victim knows come from its last
 * slots, as a peer would take them. The input changes some.
 */
void hostile_push(struct fuzz *fuzz)
{
	struct fuzz_input *input = &fuzz->input;
	uint8_t style = take_u8(input);
	uint32_t kind = style % 12;
	uint32_t flags = take_u8(input) & 63;
	uint32_t length = style & 16 ? take_u32(input) : take_u16(input);
	uint64_t word = take_u8(input) % 8;
	uint64_t payload[6] = {0};
	const struct ring_slot *heard = victims_slot(fuzz, style & 32 ? take_u8(input) % 16 : 0);

	if (fuzz->ring_slots == 0)
		return;
	uint64_t said[2] = {0};
	uint64_t said_word = 0;
	if (heard != NULL) {
		said_word = shared_load_u64(&heard->word);
		shared_copy_in(said, heard->payload, sizeof(said));
	}
	uint64_t offset = take_offset(input) << 32;
	offset |= take_u16(input) % 460;
	/* Of the kinds beyond these, one stands for an invalid kind or itself, one for all one-sided
	 * operations. */
	if (kind == 0 && (style & 64) != 0)
		kind = WIRE_PAUSE;
	else if (kind == 0 && (style & 128) != 0)
		kind = WIRE_RESIZE;
	if (kind == 11 && (style & 128) == 0)
		kind = hostile_remote(fuzz, style, offset, &word, payload, &length);
	switch (kind) {
	case WIRE_WRITE:
	case WIRE_WRITE_CHUNK:
	case WIRE_READ:
	case WIRE_ATOMIC:
	case WIRE_ATOMIC_CHUNK:
	case WIRE_REPLY:
	case WIRE_REPLY_CHUNK:
	case WIRE_DONE:
		break;
	case WIRE_EAGER:
		payload[0] = take_u8(input);
		payload[1] = take_u8(input);
		payload[2] = offset;
		break;
	case WIRE_RENDEZVOUS:
		payload[1] = take_u8(input);
		payload[2] = take_u32(input) >> take_u8(input) % 32;
		payload[3] = style & 64 ? payload[2] : take_u32(input) % 300000;
		payload[4] = offset;
		if (style & 128) /* offers a single copy */
			payload[3] |= (uint64_t)transfer_id(take_u8(input), 1) << 32;
		break;
	case WIRE_EARLY:
		payload[0] = offset;
		break;
	case WIRE_PIECE: /* the id is in the CLEAR that the victim sent */
		word = said[0];
		payload[0] = offset;
		break;
	case WIRE_CLEAR: /* the id is in the RENDEZVOUS that the victim sent */
		word = said[1];
		payload[0] = take_u8(input);
		payload[1] = take_u32(input) >> take_u8(input) % 32;
		if (style & 64) {
			payload[3] = take_u8(input) % 4 | (uint64_t)transfer_id(take_u8(input), 1) << 32;
			payload[4] = style & 128 ? take_u32(input) : HEAP_OFFSET;
		}
		break;
	case WIRE_PAUSE:
		word = take_u8(input) % 3;
		length = 0;
		break;
	case WIRE_RESIZE:
		flags = style & 16 ? flags : 0;
		length = style & 16 ? length : RING_SLOTS_MIN << take_u8(input) % 4;
		word = style & 32 ? take_u64(input) : next_ring_offset(fuzz);
		break;
	case WIRE_RESUME:
		word = said[1];
		payload[1] = take_u32(input) % 160000;
		break;
	case WIRE_ACKNOWLEDGE:
		word = style & 64 ? said_word : said[1];
		if (style & 128)
			word = said[0];
		break;
	default:
		take_bytes(input, payload, sizeof(payload));
		break;
	}
	struct ring_slot *slot =
		(struct ring_slot *)(void *)(region_section(fuzz->region, HOSTILE) + fuzz->ring_offset) +
		fuzz->ring_position % fuzz->ring_slots;
	uint32_t shift = (uint32_t)__builtin_ctz(fuzz->ring_slots);
	shared_store_u64(&slot->word, word);
	shared_copy_out(slot->payload, payload, sizeof(payload));
	shared_store_u64(&slot->control,
			 control_word(kind, flags, length) | ring_lap(fuzz->ring_position, shift));
	fuzz->ring_position++;
	if (kind == WIRE_RESIZE && (style & (16 | 32)) == 0)
		move_ring(fuzz, (uint32_t)word, length);
}

/* A transfer line that looks valid, or has any words. */
void hostile_transfer(struct fuzz *fuzz)
{
	uint8_t style = take_u8(&fuzz->input);
	uint32_t index = take_u8(&fuzz->input) % REGION_TRANSFERS;
	struct transfer_line *line = section_transfer(fuzz->region, HOSTILE, index);
	struct transfer_words words = {
		.claimed = take_u32(&fuzz->input) % 160000,
		.done = take_u32(&fuzz->input) % 160000,
		.offset = HEAP_OFFSET + take_u8(&fuzz->input),
		.peer = (uint64_t)fuzz->messenger->transport->attachments[0].member->epoch << 32 | VICTIM,
	};

	if (style & 1)
		words.done = words.claimed;
	if (style & 2)
		words.offset = take_u64(&fuzz->input);
	if (style & 4)
		words.claimed = take_u64(&fuzz->input);
	if (style & 8)
		words.done = take_u64(&fuzz->input);
	transfer_open(line, style & 16 ? take_u32(&fuzz->input) : transfer_id(index, 1), &words);
}

/*
 * Write the identity of a member in another region, as the victim searches for it, or any words. Then the
 * victim searches.
 */
void hostile_identity(struct fuzz *fuzz)
{
	struct fuzz_input *input = &fuzz->input;
	uint8_t style = take_u8(input);
	const struct member_identity wanted = {
		.region = {3, 4}, .slot = 1, .epoch = 2, .nonce = fuzz->hostile_epoch * UINT64_C(0x1234567)};
	/* In the victim's section, too: then there may be two members with this identity. */
	struct section_header *header = section_header(fuzz->region, style & 1 ? VICTIM : HOSTILE);
	uint32_t slot = UINT32_MAX;
	uint32_t epoch = 0;

	shared_store_u64(&header->home[0], style & 2 ? take_u64(input) : wanted.region[0]);
	shared_store_u64(&header->home[1], style & 4 ? take_u64(input) : wanted.region[1]);
	shared_store_u32(&header->home_slot, style & 8 ? take_u32(input) : wanted.slot);
	shared_store_u32(&header->home_epoch, style & 16 ? take_u32(input) : wanted.epoch);
	if (style & 32)
		shared_store_u64(&header->nonce, style & 64 ? take_u64(input) : wanted.nonce);
	enum member_found found = member_find(fuzz->region, &wanted, &slot, &epoch);
	require(found != MEMBER_FOUND ||
			((slot == HOSTILE || slot == VICTIM) && member_is_intact(fuzz->region, slot, epoch)),
		"somebody was found where nobody is");
}

void hostile_credit(struct fuzz *fuzz)
{
	struct credit_line *line = section_credit(fuzz->region, HOSTILE, VICTIM);
	const struct peer *peer = fuzz->messenger->transport->peers[HOSTILE];
	uint8_t style = take_u8(&fuzz->input);
	uint32_t consumed = 0;
	uint32_t connection = 0;

	if (peer != NULL) {
		connection = peer->out.connection;
		consumed = peer->out.position - (style & 1 ? take_u8(&fuzz->input) : 0);
	}
	if (style & 2) { /* return outstanding chunks */
		uint64_t bits[CHUNK_WORDS];
		for (uint32_t word = 0; peer != NULL && word < CHUNK_WORDS; word++)
			bits[word] = peer->account.returned[word];
		for (uint32_t chunk = 0;
		     peer != NULL && chunk < fuzz->messenger->transport->attachments[0].chunks.count; chunk++)
			if (fuzz->messenger->transport->attachments[0].chunks.holder[chunk] == &peer->account)
				bits[chunk / 64] ^= UINT64_C(1) << chunk % 64;
		for (uint32_t word = 0; peer != NULL && word < CHUNK_WORDS; word++)
			shared_store_u64(&line->returned[word], bits[word]);
	}
	if (style & 4)
		shared_store_u64(&line->returned[take_u8(&fuzz->input) % CHUNK_WORDS],
				 take_u64(&fuzz->input));
	if (style & 8)
		connection ^= take_u8(&fuzz->input);
	shared_store_u64(&line->consumed, (uint64_t)connection << 32 | consumed);
}

/* Publish memory that the victim may access itself: valid ranges, with words from the input. */
void hostile_expose(struct fuzz *fuzz)
{
	struct fuzz_input *input = &fuzz->input;
	struct section_header *header = section_header(fuzz->region, HOSTILE);
	uint8_t style = take_u8(input);
	uint8_t words = take_u8(input);
	struct exposure_line *line = &header->exposures[style % 4];
	uint64_t offset = section_arena_end(fuzz->region);
	uint64_t process = shared_load_u64(&section_header(fuzz->region, VICTIM)->process);

	fuzz->exposures++;
	shared_store_u64(&header->process, style & 16 ? take_u8(input) : process);
	shared_store_u64(&line->key, words & 1 ? take_u8(input) % 4 : 1);
	shared_store_u64(&line->address, words & 2 ? take_u64(input) >> take_u8(input) % 64 : 0);
	shared_store_u64(&line->length, words & 4 ? take_u64(input) >> take_u8(input) % 64 : HEAP_BYTES);
	shared_store_u64(&line->offset, words & 8 ? offset + take_u64(input) % (2 * HEAP_BYTES) : offset);
	if (words & 16)
		shared_store_u64(&line->offset, take_u64(input) >> take_u8(input) % 64);
	shared_store_u32(&line->slot, words & 32 ? take_u8(input) % 5 : HOSTILE);
	shared_store_u32(&line->epoch, words & 64 ? take_u8(input) % 4 : fuzz->hostile_epoch);
	shared_store_u32(&line->access, words & 128 ? take_u8(input) % 8 : 3);
	shared_store_u64(&line->sequence, 2 * (uint64_t)fuzz->exposures + (style & 32 ? 1 : 0));
	if ((style & 64) == 0)
		shared_store_u64(&header->exposed, fuzz->exposures);
}

/* Write any bytes anywhere, except the poison section and its claim word. */
void hostile_scribble(struct fuzz *fuzz)
{
	uint32_t offset = take_u32(&fuzz->input) % (uint32_t)fuzz->region->bytes;
	uint8_t bytes[16];
	uint8_t length = take_u8(&fuzz->input) % sizeof(bytes) + 1;
	size_t poison = (size_t)(region_section(fuzz->region, UNUSED) - fuzz->region->base);
	size_t claim = REGION_SLOTS_OFFSET + UNUSED * sizeof(struct member_slot);

	take_bytes(&fuzz->input, bytes, length);
	for (uint32_t at = offset; at < offset + length && at < fuzz->region->bytes; at++)
		if ((at < poison || at >= poison + SECTION_BYTES) && (at < claim || at >= claim + 8))
			fuzz->region->base[at] = bytes[at - offset];
}
