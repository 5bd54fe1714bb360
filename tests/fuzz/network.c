/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * network.c - the hostile member in the network: a core that loses the victim's frames and delivers frames
 * from the input, and switches that look valid or not.
 */
#include "fuzz/fuzz.h"
#include "transport/network_transport.h"
#include "transport/switch.h"
#include "unit/fake_end.h"

/* The first end is the victim's. All its frames are lost, and all its reads return zeros. */
static struct fake_end ends[FAKE_ENDS];
static struct directory directory;

/* Opened at the first step that needs the network. */
static void open_network(struct fuzz *fuzz)
{
	if (fuzz->messenger->transport->network != NULL)
		return;
	memset(ends, 0, sizeof(ends));
	memset(&directory, 0, sizeof(directory));
	for (uint32_t i = 0; i < FAKE_ENDS; i++)
		ends[i].sinks = true;
	ends[0].reads_nothing = true;
	fake_end_open(ends, 0);
	require(network_open(fuzz->messenger->transport, &ends[0].core, &directory) == 0, "no memory");
}

void fail_network(struct fuzz *fuzz)
{
	struct transport *transport = fuzz->messenger->transport;

	for (uint32_t slot = 0; slot < transport->peer_end; slot++)
		if (transport->peers[slot] != NULL && transport->peers[slot]->beyond != NULL)
			transport_fail(transport, transport->peers[slot], -ECONNABORTED, "it is over");
}

void forget_network(void)
{
	require(ends[0].registered == 0, "memory stays exposed");
	directory_close(&directory);
}

/* ---- the hostile member in the network ---- */

static struct peer *hostile_peer(const struct fuzz *fuzz)
{
	return fuzz->messenger->transport->peers[HOSTILE];
}

/* A slot as it is in a frame. Returns its end, and sets the number of its bytes in a chunk. */
static unsigned char *take_slot(struct fuzz_input *input, unsigned char *to, uint32_t *chunk)
{
	static const uint8_t kinds[] = {WIRE_INLINE, WIRE_EAGER, WIRE_RENDEZVOUS, WIRE_OFFER,
					WIRE_SWITCH, WIRE_PIECE, WIRE_READ,       WIRE_REPLY_CHUNK};
	uint8_t choice = take_u8(input);
	uint32_t kind = choice & 128 ? choice & 31 : kinds[choice % 8];
	bool plain = kind == WIRE_SWITCH || kind == WIRE_PAUSE;
	bool bare = plain || kind == WIRE_OFFER || kind >= WIRE_CORE_WRITE;
	uint32_t length = bare ? 0 : take_u16(input) % 5000;
	uint64_t control = control_word(kind, plain ? 0 : take_u8(input) & 127, length);
	struct slot_shape shape = wire_shape(control);
	struct frame_slot slot = {control | shape.payload, kind == WIRE_SWITCH ? 0 : take_u8(input)};

	memcpy(to, &slot, sizeof(slot));
	to += sizeof(slot);
	take_bytes(input, to, shape.payload);
	if (choice & 64 && shape.payload >= 24) /* a valid length */
		memset(to + 18, 0, 6);
	if (shape.chunk != SLOT_NO_CHUNK)
		*chunk = length;
	return to + shape.payload;
}

/*
 * Kinds that the member may send. Older kinds keep the numbers that they had first, so that older inputs keep
 * their meaning.
 */
static uint8_t take_kind(struct fuzz_input *input)
{
	uint8_t choice = take_u8(input);

	if (choice == 223)
		return FRAME_TAKEN;
	return choice >= 224 ? (uint8_t)(FRAME_DETACH + choice % 2) : choice % 10;
}

static void send_frame(struct fuzz *fuzz, uint8_t style)
{
	static unsigned char frame[sizeof(struct frame_header) + 4 * (16 + FRAME_PAYLOAD_MAX) + 5000];
	struct fuzz_input *input = &fuzz->input;
	const struct peer *peer = hostile_peer(fuzz);
	const struct network_peer *beyond = peer != NULL ? peer->beyond : NULL;
	unsigned char *end = frame + sizeof(struct frame_header);
	uint32_t chunk = 0;
	struct frame_header header = {
		.magic = FRAME_MAGIC,
		.version = FRAME_VERSION,
		.kind = style & 8 ? take_kind(input) : FRAME_SLOTS,
		.slots = (uint16_t)(1U + style % 4),
		.stream = beyond != NULL ? beyond->stream : 0,
		.to = fuzz->messenger->transport->attachments[0].member->nonce,
		.from = shared_load_u64(&section_header(fuzz->region, HOSTILE)->nonce) + (style & 128),
		.sequence = beyond != NULL ? beyond->expected : 0,
	};

	if (header.kind == FRAME_SWITCHED && beyond != NULL)
		header.sequence = beyond->sequence;
	if (style & 4)
		header.sequence += take_u8(input) % 4;
	for (uint32_t i = 0; header.kind == FRAME_SLOTS && i < header.slots; i++)
		end = take_slot(input, end, &chunk);
	if (header.kind == FRAME_HELLO) {
		struct frame_hello hello = {
			.provider = FAKE_PROVIDER, .length = 1, .name = {style & 64 ? take_u8(input) : 0}};
		memcpy(end, &hello, sizeof(hello));
		end += sizeof(hello);
	}
	if (header.kind == FRAME_FAILOVER) {
		struct frame_failover failover = {
			.region = {fuzz->region->id[0] + (style & 1), fuzz->region->id[1]},
			.slot = style & 32 ? take_u8(input) : HOSTILE,
			.epoch = fuzz->hostile_epoch,
			.hello = {.provider = FAKE_PROVIDER,
				  .length = 1,
				  .name = {style & 64 ? take_u8(input) : 0}},
		};
		header.stream = style & 16 ? take_u8(input) : 1;
		memcpy(end, &failover, sizeof(failover));
		end += sizeof(failover);
	}
	if (header.kind == FRAME_REGION || header.kind == FRAME_DETACH)
		header.sequence = take_u8(input) % 4;
	if (header.kind == FRAME_REGION) {
		struct frame_region said = {
			.region = {fuzz->region->id[0] + (style & 1), fuzz->region->id[1]},
			.nonce = header.from,
			.slot = style & 32 ? take_u8(input) : HOSTILE,
			.epoch = fuzz->hostile_epoch + (style & 64),
		};
		memcpy(end, &said, sizeof(said));
		end += sizeof(said);
	}
	memset(end, 3, chunk);
	header.bytes = style & 16 ? take_u16(input) : chunk;
	if (header.kind == FRAME_DETACH && (style & 32) == 0)
		header.bytes = network_tenancy(fuzz->region, fuzz->hostile_epoch);
	memcpy(frame, &header, sizeof(header));
	(void)fake_deliver(&ends[0], frame, (size_t)(end - frame) + chunk);
}

/* Push a SWITCH into the ring at the victim's position. */
static void push_switch(struct fuzz *fuzz)
{
	if (fuzz->ring_slots == 0)
		return;
	struct ring_slot *slot =
		(struct ring_slot *)(void *)(region_section(fuzz->region, HOSTILE) + fuzz->ring_offset) +
		fuzz->ring_position % fuzz->ring_slots;
	uint32_t shift = (uint32_t)__builtin_ctz(fuzz->ring_slots);
	shared_store_u64(&slot->word, 0);
	shared_store_u64(&slot->control,
			 control_word(WIRE_SWITCH, 0, 0) | ring_lap(fuzz->ring_position, shift));
	fuzz->ring_position++;
}

/*
 * Write a request to a member in the victim's region or outside it, and the name that the hostile member
 * publishes as its own.
 */
static void request_route(struct fuzz *fuzz, uint8_t style)
{
	struct section_header *header = section_header(fuzz->region, HOSTILE);
	uint32_t epoch = style & 8 ? fuzz->messenger->transport->attachments[0].member->epoch
				   : fuzz->hostile_epoch + (style & 16);
	struct member_slot *slot = region_slot(fuzz->region, style & 8 ? VICTIM : HOSTILE);

	shared_store_u64(&slot->requested_route, (uint64_t)epoch << 32 | (style & 32  ? ROUTE_REGION
									  : style & 2 ? ROUTE_LEAVE
										      : ROUTE_NETWORK));
	shared_store_u32(&header->core,
			 style & 64 ? take_u32(&fuzz->input) : FAKE_PROVIDER | UINT32_C(1) << 16);
}

void hostile_network(struct fuzz *fuzz)
{
	uint8_t style = take_u8(&fuzz->input);
	struct transport *transport = fuzz->messenger->transport;

	open_network(fuzz);
	switch (take_u8(&fuzz->input) % 6) {
	case 0:
		request_route(fuzz, style);
		break;
	case 1:
		transport_begin_switches(transport);
		break;
	case 2:
		ends[0].refusals = style;
		break;
	case 3:
		push_switch(fuzz);
		break;
	case 4:
		if (!transport->network->lost && transport->network->directory->count > 0)
			(void)network_progress_full(transport);
		break;
	default:
		send_frame(fuzz, style);
		break;
	}
}
