/* SPDX-License-Identifier: BSD-3-Clause */
/* walk_faults.c - see walk.h. */
#include "fuzz/walk.h"

#include <stdio.h>
#include <stdlib.h>

#include "transport/detach.h"
#include "transport/region_transport.h"

void distrust(struct walk *walk, uint8_t one, uint8_t other, enum trust most)
{
	walk->concerned[one] = walk->concerned[other] = true;
	if (walk->trust[one][other] < most)
		walk->trust[one][other] = most;
	if (walk->trust[other][one] < most)
		walk->trust[other][one] = most;
}

enum trust trust_of(const struct walk *walk, const struct operation *operation, uint8_t other)
{
	if (operation->at_life != walk->lives[operation->at] ||
	    (operation->other == other && operation->other_life != walk->lives[other]))
		return TRUST_HOSTILE;
	return walk->trust[operation->at][other];
}

struct peer *known(const struct walk *walk, uint8_t at, uint8_t whom)
{
	const struct transport *transport = transport_of(at);

	for (uint32_t source = 0; source < transport->peer_end; source++)
		if (transport->peers[source] != NULL && transport->peers[source]->source == source &&
		    transport->peers[source]->nonce == walk->addresses[whom].nonce)
			return transport->peers[source];
	return NULL;
}

/* ---- death ---- */

void walk_open(struct walk *walk, uint8_t index, const char *list)
{
	open_endpoint(index, list);
	walk->addresses[index] = address_of(index);
	walk->names[index] = *network_name(transport_of(index)->network);
}

/* As if killed: its locks are gone, and its slots and sections stay as they are. */
static void die(struct walk *walk, uint8_t index)
{
	struct transport *transport = transport_of(index);

	forget_operations(walk, index);
	for (uint32_t i = 0; i < transport->attachment_count; i++)
		transport->attachments[i].member->process = 0;
	node_die(&world.nodes[index].node);
	directory_close(&world.nodes[index].directory);
	for (uint32_t i = 0; i < domains[index].region_count; i++)
		region_detach(domains[index].regions[i]);
	memset(&world.nodes[index], 0, sizeof(world.nodes[index]));
	memset(&domains[index], 0, sizeof(domains[index]));
	memset(&world.ends[index], 0, sizeof(world.ends[index]));
	world.ends[index].sinks = true;
	for (uint8_t i = 0; i < FAKE_ENDS; i++)
		distrust(walk, index, i, TRUST_LOSSY);
}

static void succeed(struct walk *walk, uint8_t index)
{
	static const char *const lists[] = {"1", "2", "3", "12", "21"};
	uint8_t style = take_u8(&walk->input);

	world.ends[index].sinks = false;
	walk->lives[index]++;
	/* An endpoint is in a region once. */
	walk_open(walk, index, lists[style % (walk->plugged ? 3 : 5)]);
	/* Faults of its predecessor do not affect it. */
	for (uint8_t i = 0; i < FAKE_ENDS; i++)
		walk->trust[index][i] = walk->trust[i][index] =
			is_alive(i) && !world.ends[i].sinks ? TRUST_CLEAN : TRUST_LOSSY;
}

/* One endpoint dies; or, if it is dead, gets a successor. */
void walk_death(struct walk *walk)
{
	uint8_t index = take_u8(&walk->input) % FAKE_ENDS;

	if (!(walk->allowed & FAULT_DEATH))
		return;
	if (is_alive(index))
		die(walk, index);
	else if (walk->lives[index] == 0)
		succeed(walk, index);
}

/* ---- the network ---- */

void walk_loss(struct walk *walk)
{
	uint8_t index = take_u8(&walk->input) % FAKE_ENDS;

	if (!(walk->allowed & FAULT_LOSS) || !is_alive(index))
		return;
	world.ends[index].sinks = !world.ends[index].sinks;
	for (uint8_t i = 0; i < FAKE_ENDS; i++)
		if (i != index)
			distrust(walk, index, i, TRUST_LOSSY);
}

/* Write the payload of a frame of this kind, as its sender would fill it in. Returns its length. */
static size_t write_payload(unsigned char *to, struct frame_header *header, uint8_t from, uint8_t choice)
{
	const struct transport *transport = transport_of(from);
	const struct member *member = transport->attachments[choice % transport->attachment_count].member;

	if (header->kind == FRAME_HELLO) {
		struct frame_hello hello = {0};
		network_write_hello(transport->network, &hello);
		memcpy(to, &hello, sizeof(hello));
		return sizeof(hello);
	}
	if (header->kind == FRAME_FAILOVER) {
		struct frame_failover failover = {.region = {member->region->id[0], member->region->id[1]},
						  .slot = member->slot,
						  .epoch = member->epoch};
		network_write_hello(transport->network, &failover.hello);
		header->stream = 1;
		memcpy(to, &failover, sizeof(failover));
		return sizeof(failover);
	}
	if (header->kind == FRAME_REGION) {
		struct frame_region location = {.region = {member->region->id[0], member->region->id[1]},
						.nonce = member->nonce,
						.slot = member->slot,
						.epoch = member->epoch};
		memcpy(to, &location, sizeof(location));
		return sizeof(location);
	}
	if (header->kind == FRAME_DETACH)
		header->bytes = network_tenancy(member->region, member->epoch);
	return 0;
}

/* The header of the next valid frame from `from` to `to`. */
static struct frame_header next_header(struct walk *walk, uint8_t to, uint8_t from, uint8_t kind)
{
	const struct peer *peer = known(walk, to, from);
	const struct network_peer *beyond = peer != NULL ? peer->beyond : NULL;
	struct frame_header header = {
		.magic = FRAME_MAGIC,
		.version = FRAME_VERSION,
		.kind = kind,
		.to = walk->addresses[to].nonce,
		.from = walk->addresses[from].nonce,
		.stream = beyond != NULL ? beyond->stream : 0,
	};
	bool numbered = kind == FRAME_HELLO || kind == FRAME_LEAVE || kind == FRAME_SLOTS;

	if (numbered)
		header.sequence = beyond != NULL ? beyond->expected : 0;
	else
		header.sequence = take_u8(&walk->input) % 3;
	return header;
}

/* A forged frame: the sender's last frame, or one that it could send, with changes. */
void walk_frame(struct walk *walk)
{
	static unsigned char frame[FRAME_MAX + sizeof(struct frame_failover)];
	uint8_t ends = take_u8(&walk->input);
	uint8_t style = take_u8(&walk->input);
	uint8_t to = ends % FAKE_ENDS;
	uint8_t from = ends / 16 % 4 % FAKE_ENDS;

	if (!(walk->allowed & FAULT_FRAMES) || to == from || !is_alive(to) || !is_alive(from))
		return;
	distrust(walk, to, from, TRUST_HOSTILE);
	size_t length = world.ends[from].last_length;
	struct frame_header header = next_header(walk, to, from, (uint8_t)(1 + ends / 64 * 4 + style % 4));
	if (style & 64 || length < sizeof(header)) {
		length =
			sizeof(header) + write_payload(frame + sizeof(header), &header, from, style >> 2 & 3);
		memcpy(frame, &header, sizeof(header));
	} else {
		memcpy(frame, world.ends[from].last, length);
		/* As if it were for this receiver, and next in order. */
		memcpy(frame + offsetof(struct frame_header, to), &header.to, sizeof(header.to));
		if (style & 32)
			memcpy(frame + offsetof(struct frame_header, sequence), &header.sequence,
			       sizeof(header.sequence));
	}
	for (uint32_t changes = style >> 2 & 7; style & 128 && changes > 0; changes--) {
		size_t index = take_u16(&walk->input) % length;
		/* The sender stays, so that no third endpoint is affected. */
		uint8_t change = take_u8(&walk->input);
		if (index - offsetof(struct frame_header, to) >= 2 * sizeof(header.to))
			frame[index] ^= change;
	}
	(void)fake_deliver(&world.ends[to], frame, length < FRAME_MAX ? length : FRAME_MAX);
}

/* ---- the region ---- */

/*
 * Another member takes an endpoint's slot, as after a pause; or the endpoint gives up a peer; or a peer
 * pushes an invalid slot.
 */
void walk_eviction(struct walk *walk)
{
	uint8_t ends = take_u8(&walk->input);
	uint8_t style = take_u8(&walk->input);
	uint8_t at = ends % FAKE_ENDS;
	uint8_t other = ends / 16 % FAKE_ENDS;

	if (!(walk->allowed & FAULT_EVICTION) || at == other || !is_alive(at))
		return;
	struct transport *transport = transport_of(at);
	struct attachment *attachment = &transport->attachments[style / 4 % transport->attachment_count];
	struct peer *peer = known(walk, at, other);
	if (style % 4 == 0 && !attachment->region->left) {
		/*
		 * Its messages with each other endpoint may fail. The other endpoints' messages with each
		 * other may not.
		 */
		for (uint8_t i = 0; i < FAKE_ENDS; i++)
			distrust(walk, at, i, TRUST_LOSSY);
		shared_store_u64(&region_slot(attachment->region, attachment->member->slot)->claim,
				 (uint64_t)(attachment->member->epoch + 1) << 32 | SLOT_CLAIMED);
	} else if (style % 4 == 1 && peer != NULL && peer->network == NULL && peer->sending &&
		   !peer->switching && peer->state == PEER_PRESENT && ring_has_room(&peer->out, 1)) {
		distrust(walk, at, other, TRUST_HOSTILE);
		ring_push(&peer->out, control_word(200, 0, 0), 1);
	} else if (peer != NULL) {
		distrust(walk, at, other, TRUST_LOSSY);
		transport_fail(transport, peer, style & 64 ? -ECONNRESET : -EPROTO, "the walk gives it up");
	}
}
