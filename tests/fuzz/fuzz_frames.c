/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_frames.c - an endpoint against a process that reaches its port and sends any frames.
 *
 * The input is a sequence of steps: frames that look valid, with slots and chunks of any kind; frames of any
 * bytes; completions and errors of the core; and calls of the victim's application. The sender knows the
 * victim's nonce, as every rank of its job does. The victim must not crash, access memory outside its
 * buffers, or work without bound. When the sender is gone in the end, all operations with it must have ended.
 */
#include "fuzz/fuzz_input.h"
#include "unit/fake_core.h"

#include <stdio.h>
#include <stdlib.h>

#define STEPS_MAX 200U
#define OPERATIONS_MAX 32U
#define SETTLING_MAX 10000U
/* The victim's registration and its key. */
#define REACHABLE_BYTES 200000U
#define REACHABLE_KEY 1U

enum { VICTIM, SENDER };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/*
 * An operation of the victim's application. Its buffer is a block of exactly its length, so that sanitizers
 * see a byte beside.
 */
struct operation {
	unsigned char *buffer;
	bool active;
	bool send;
};

struct fuzz {
	struct fuzz_input input;
	struct fake_world world;
	struct far_node *victim;
	struct msg_peer *sender;
	struct operation operations[OPERATIONS_MAX];
	unsigned char *reachable;
	struct registration registration;
	struct registration_table table;
	uint64_t nonce;    /* the sender's */
	uint32_t sequence; /* of its next frame */
};

static void require(bool condition, const char *what)
{
	if (condition)
		return;
	(void)fprintf(stderr, "fuzz_frames: %s\n", what);
	abort();
}

/* ---- the victim ---- */

static void take_completions(struct fuzz *fuzz, struct completion_queue *queue, bool sends)
{
	for (; !completion_is_empty(queue); queue->head++) {
		struct operation *operation = completion_first(queue)->context;
		if (operation == NULL)
			continue;
		require(operation >= fuzz->operations && operation < fuzz->operations + OPERATIONS_MAX,
			"a completion names no operation");
		require(operation->active, "an operation completes twice");
		require(operation->send == sends, "a send completes as a receive");
		operation->active = false;
		free(operation->buffer);
		operation->buffer = NULL;
	}
}

static uint32_t step_victim(struct fuzz *fuzz)
{
	struct messenger *messenger = fuzz->victim->node.messenger;
	uint32_t moved = messenger_progress(messenger) + transport_progress_full(messenger->transport);

	take_completions(fuzz, &fuzz->victim->node.sends, true);
	take_completions(fuzz, &fuzz->victim->node.receives, false);
	return moved;
}

static struct operation *new_operation(struct fuzz *fuzz, size_t length, bool send)
{
	for (uint32_t i = 0; i < OPERATIONS_MAX; i++) {
		struct operation *operation = &fuzz->operations[i];
		if (operation->active)
			continue;
		*operation = (struct operation){malloc(length > 0 ? length : 1), true, send};
		require(operation->buffer != NULL, "no memory");
		memset(operation->buffer, 7, length);
		return operation;
	}
	return NULL;
}

static size_t take_length(struct fuzz *fuzz)
{
	static const uint32_t lengths[] = {0, 8, 48, 49, 441, 4096, 16384, 65536, 65537, 100000, 1100000, 1};

	return lengths[take_u8(&fuzz->input) % 12];
}

static void victim_operates(struct fuzz *fuzz, bool send)
{
	static const uint64_t flags[] = {FI_TAGGED, FI_MSG, FI_TAGGED | FI_DELIVERY_COMPLETE,
					 FI_MSG | FI_REMOTE_CQ_DATA};
	uint8_t style = take_u8(&fuzz->input);
	size_t length = take_length(fuzz);
	struct operation *operation = new_operation(fuzz, length, send);
	struct messenger *messenger = fuzz->victim->node.messenger;
	ssize_t result = 0;

	if (operation == NULL)
		return;
	size_t first = style & 64 ? length / 3 : length;
	struct iovec pieces[2] = {{operation->buffer, first}, {operation->buffer + first, length - first}};
	if (send)
		result = messenger_send(messenger, &(struct send_request){
							   .pieces = pieces,
							   .count = style & 64 ? 2 : 1,
							   .length = length,
							   .to = fuzz->sender,
							   .tag = style & 3,
							   .context = operation,
							   .flags = flags[style >> 2 & 3] | FI_COMPLETION,
						   });
	else
		result = messenger_receive(
			messenger, &(struct receive_request){
					   .pieces = pieces,
					   .count = style & 64 ? 2 : 1,
					   .source = style & 8 ? MATCH_ANY_SOURCE : fuzz->sender->peer.source,
					   .tag = style & 3,
					   .ignore = style & 16 ? UINT64_MAX : 0,
					   .context = operation,
					   .flags = (style & 4 ? FI_TAGGED : FI_MSG) | FI_COMPLETION,
				   });
	if (result != 0) {
		operation->active = false;
		free(operation->buffer);
		operation->buffer = NULL;
	}
}

/* The victim reads or writes the sender's memory. */
static void victim_reaches(struct fuzz *fuzz)
{
	uint8_t style = take_u8(&fuzz->input);
	size_t length = take_length(fuzz);
	struct operation *operation = new_operation(fuzz, length, true);

	if (operation == NULL)
		return;
	size_t first = style & 64 ? length / 3 : length;
	const struct iovec pieces[2] = {{operation->buffer, first},
					{operation->buffer + first, length - first}};
	const struct fi_rma_iov range = {take_u8(&fuzz->input), length, style & 3};
	ssize_t result =
		messenger_remote(fuzz->victim->node.messenger,
				 &(struct remote_request){
					 .kind = style & 4 ? REMOTE_READ : REMOTE_WRITE,
					 .pieces = pieces,
					 .count = style & 64 ? 2 : 1,
					 .length = length,
					 .ranges = &range,
					 .range_count = 1,
					 .to = fuzz->sender,
					 .context = operation,
					 .flags = FI_COMPLETION | (style & 8 ? FI_REMOTE_CQ_DATA : 0U),
				 });
	if (result != 0) {
		operation->active = false;
		free(operation->buffer);
		operation->buffer = NULL;
	}
}

/* ---- the sender ---- */

/* Another process instead of a process whose connection is gone. */
static void meet_another(struct fuzz *fuzz)
{
	struct core_name name = {.provider = 7, .length = 1, .bytes = {SENDER}};
	uint32_t index = directory_add(&fuzz->victim->directory, ++fuzz->nonce, &name);
	struct peer *peer =
		network_meet(fuzz->victim->node.messenger->transport, fuzz->victim->region->members + index);

	require(peer != NULL, "the sender is not met");
	fuzz->sender = (struct msg_peer *)(void *)peer;
	fuzz->sequence = 0;
}

/* Write one slot at `to`, usually with a length that fits its kind. Returns its bytes. */
static size_t write_slot(struct fuzz *fuzz, unsigned char *to, uint32_t chunk)
{
	static const uint32_t lengths[] = {0, 1, 8, 24, 40, 48, 49, 100, 440, 4096, 16384, 65535};
	uint8_t kind = take_u8(&fuzz->input);
	uint8_t shape = take_u8(&fuzz->input);
	uint32_t length = shape & 128 ? take_u32(&fuzz->input) : lengths[shape % 12];
	uint32_t payload = shape & 64 ? take_u8(&fuzz->input) % (RING_PAYLOAD + 8U) : FRAME_PAYLOAD_MAX;

	if ((shape & 32) != 0 && chunk > 0)
		length = chunk;
	uint8_t flags = kind & 128 ? take_u8(&fuzz->input) : 0;
	uint64_t control = control_word(kind % 30, flags, length) & ~(uint64_t)CONTROL_LAP_MASK;
	/* A small number, or the victim's name of an operation: a generation and an index. */
	uint8_t word = take_u8(&fuzz->input);
	uint64_t generation = word & 32 ? 0 : 1U + (word >> 6);
	struct frame_slot slot = {control | payload, generation << 32 | (word & 7)};

	memcpy(to, &slot, sizeof(slot));
	take_bytes(&fuzz->input, to + sizeof(slot), payload);
	return sizeof(slot) + payload;
}

/* A valid frame, except one in four. */
static void send_frame(struct fuzz *fuzz)
{
	static unsigned char frame[2 * FRAME_MAX];
	uint8_t style = take_u8(&fuzz->input);
	uint8_t damage = style >= 192 ? take_u8(&fuzz->input) : 0;

	if (fuzz->sender->peer.state == PEER_FAILED)
		meet_another(fuzz);
	/* One field after the other, so that the order of taking input does not depend on the compiler. */
	struct frame_header header = {.magic = FRAME_MAGIC, .version = FRAME_VERSION};
	header.kind = damage & 1 ? take_u8(&fuzz->input) % 9 : FRAME_SLOTS;
	header.slots = damage & 2 ? take_u8(&fuzz->input) : 1 + style % 4U;
	header.to = fuzz->victim->node.messenger->transport->attachments[0].member->nonce;
	header.from = damage & 4 ? take_u64(&fuzz->input) : fuzz->nonce;
	header.sequence = fuzz->sequence + (damage & 8 ? take_u8(&fuzz->input) : 0U);
	header.bytes = style & 16 ? take_u16(&fuzz->input) : 0;
	size_t length = sizeof(header);
	if (header.kind == FRAME_SLOTS)
		for (uint32_t i = 0; i < header.slots && i <= FRAME_SLOTS_MAX; i++)
			length += write_slot(fuzz, frame + length, header.bytes);
	if (header.kind == FRAME_HELLO) {
		struct frame_hello hello = {.provider = 7, .length = 1, .name = {SENDER}};
		if (damage & 16)
			take_bytes(&fuzz->input, &hello, sizeof(hello));
		memcpy(frame + length, &hello, sizeof(hello));
		length += sizeof(hello);
	}
	memset(frame + length, style, header.bytes);
	length += header.bytes;
	if (damage & 32)
		length = take_u16(&fuzz->input);
	memcpy(frame, &header, sizeof(header));
	if (fake_deliver(fuzz->victim->end, frame, length < FRAME_MAX ? length : FRAME_MAX) &&
	    header.sequence == fuzz->sequence && header.kind <= FRAME_LEAVE)
		fuzz->sequence++;
	(void)step_victim(fuzz);
}

static void send_anything(struct fuzz *fuzz)
{
	unsigned char bytes[256];
	size_t length = take_u8(&fuzz->input);

	take_bytes(&fuzz->input, bytes, length);
	(void)fake_deliver(fuzz->victim->end, bytes, length);
}

static void core_says(struct fuzz *fuzz)
{
	uint8_t style = take_u8(&fuzz->input);

	fuzz->victim->end->refusals = style & 1 ? style >> 4 : 0;
	fuzz->victim->end->send_error = (style & 14) == 14 ? FI_EIO : 0;
	fuzz->victim->end->read_error = (style & 13) == 13 ? FI_EIO : 0;
}

/* ---- a run ---- */

static void begin(struct fuzz *fuzz)
{
	fake_open_node(&fuzz->world, VICTIM);
	fuzz->world.ends[SENDER].sinks = true;
	fuzz->victim = &fuzz->world.nodes[VICTIM];
	fuzz->victim->end->reads_nothing = true;
	fuzz->reachable = malloc(REACHABLE_BYTES);
	require(fuzz->reachable != NULL, "no memory");
	fuzz->registration = (struct registration){
		.key = REACHABLE_KEY,
		.base = fuzz->reachable,
		.length = REACHABLE_BYTES,
		.access = FI_REMOTE_READ | FI_REMOTE_WRITE,
		.enabled = true,
	};
	registrations_open(&fuzz->table);
	require(registrations_add(&fuzz->table, &fuzz->registration) == 0, "no memory");
	fuzz->victim->node.messenger->registrations = &fuzz->table;
	meet_another(fuzz);
}

static void end(struct fuzz *fuzz)
{
	struct transport *transport = fuzz->victim->node.messenger->transport;

	fuzz->victim->end->refusals = 0;
	for (uint32_t slot = 0; slot < transport->peer_end; slot++)
		if (transport->peers[slot] != NULL && transport->peers[slot]->network != NULL)
			transport_fail(transport, transport->peers[slot], -ECONNRESET, "the run ends");
	for (uint32_t quiet = 0, all = 0; quiet < 100; all++) {
		require(all < SETTLING_MAX, "the victim works without end");
		quiet = step_victim(fuzz) == 0 ? quiet + 1 : 0;
	}
	for (uint32_t i = 0; i < OPERATIONS_MAX; i++)
		require(!fuzz->operations[i].active || !fuzz->operations[i].send,
			"a send to who is gone has not ended");
	require(fuzz->registration.grants == 0, "memory is exposed to a peer that is gone");
	fake_close(&fuzz->world);
	registrations_close(&fuzz->table);
	free(fuzz->reachable);
	for (uint32_t i = 0; i < OPERATIONS_MAX; i++)
		free(fuzz->operations[i].buffer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct fuzz fuzz;

	fuzz = (struct fuzz){.input = {data, size}};
	begin(&fuzz);
	for (uint32_t steps = 0; fuzz.input.size > 0 && steps < STEPS_MAX; steps++) {
		uint8_t what = take_u8(&fuzz.input);
		if (what < 120)
			send_frame(&fuzz);
		else if (what < 130)
			send_anything(&fuzz);
		else if (what < 170)
			victim_operates(&fuzz, false);
		else if (what < 200)
			victim_operates(&fuzz, true);
		else if (what < 210)
			core_says(&fuzz);
		else if (what < 225)
			victim_reaches(&fuzz);
		else
			(void)step_victim(&fuzz);
	}
	end(&fuzz);
	return 0;
}
