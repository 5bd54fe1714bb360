/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * network_receive.c - frames into slots. Any process that can reach the core's port can send
 * frames, so every field is checked. Frames for other endpoints and from unknown senders are
 * dropped. An invalid frame from a known peer ends the connection.
 */
#include "transport/failover.h"
#include "transport/network_transport.h"
#include "transport/switch.h"

#include <stdio.h>

/* The maximum number of completions in one poll, so that the region also gets its turn. */
#define COMPLETIONS_PER_POLL 16U

/* A processed buffer is posted at the next poll, after its contents were delivered. */
static void post_later(struct network *network, struct frame_in *buffer)
{
	buffer->next = network->unposted;
	network->unposted = buffer;
}

bool network_post(struct network *network, struct frame_in *buffer)
{
	struct core *core = network->core;

	buffer->operation.use = CORE_RECEIVES;
	if (fi_recv(core->endpoint, buffer->bytes, sizeof(buffer->bytes), NULL, FI_ADDR_UNSPEC, buffer) == 0)
		return true;
	post_later(network, buffer);
	return false;
}

static void post_again(struct network *network)
{
	while (network->unposted != NULL) {
		struct frame_in *buffer = network->unposted;
		network->unposted = buffer->next;
		if (!network_post(network, buffer))
			return;
	}
}

/*
 * Unpack one slot of a frame of which `rest` bytes are left. Returns the length of the packed slot,
 * or 0 if it is invalid.
 */
static size_t unpack_slot(const unsigned char *from, size_t rest, struct ring_slot *slot)
{
	struct frame_slot packed;
	unsigned char payload[FRAME_PAYLOAD_MAX] = {0};

	if (rest < sizeof(packed))
		return 0;
	memcpy(&packed, from, sizeof(packed));
	size_t length = packed.control & CONTROL_LAP_MASK;
	if (length > sizeof(payload) || length > rest - sizeof(packed))
		return 0;
	memcpy(payload, from + sizeof(packed), length);
	shared_copy_out(slot->payload, payload, sizeof(payload));
	shared_store_u64(&slot->word, packed.word);
	shared_store_u64(&slot->control,
			 (packed.control & ~(uint64_t)CONTROL_LAP_MASK) | 1); /* the first lap */
	return sizeof(packed) + length;
}

/*
 * Unpack all slots of a frame. Returns the end of the slots in the frame, or NULL if the frame is
 * invalid.
 */
static const unsigned char *unpack(struct network *network, const struct frame_header *header,
				   const struct frame_view *frame)
{
	const unsigned char *from = frame->bytes + sizeof(*header);
	size_t rest = frame->length - sizeof(*header);

	if (header->slots == 0 || header->slots > FRAME_SLOTS_MAX)
		return NULL;
	for (uint32_t i = 0; i < header->slots; i++) {
		size_t taken = unpack_slot(from, rest, &network->slots[i]);
		if (taken == 0)
			return NULL;
		from += taken;
		rest -= taken;
	}
	/* No slot follows the last. */
	shared_store_u64(&network->slots[header->slots].control, 0);
	return rest == header->bytes ? from : NULL;
}

/* Process the slots as if they were in a ring of the peer. */
static void take_slots(struct network_peer *from, const struct frame_header *header,
		       const struct frame_view *frame)
{
	struct network *network = from->network;
	struct transport *transport = network->transport;
	struct peer *peer = from->peer;
	const unsigned char *bytes = unpack(network, header, frame);
	bool switches = false;

	if (bytes == NULL) {
		network_violate(from, -EPROTO, "it sent an invalid frame");
		return;
	}
	ring_in_open(&peer->in, network->slots, NETWORK_RING_SLOTS, network->unread, CONNECTION_OPEN);
	peer->returns.credit = network->unread;
	/* The bytes are in private memory. Only the application's copy of them is written. */
	peer->section = (shared_bytes *)(uintptr_t)bytes;
	peer->section_bytes = header->bytes;
	while (peer->in.position < header->slots && peer->state != PEER_FAILED) {
		uint64_t control = shared_load_u64(&ring_at(&peer->in, 0)->control);
		int slots = transport->user->arrive(transport->context, peer, control);
		/* The switch must be the last slot of the frame, and no later frame may be held. */
		switches = slots == TRANSPORT_SWITCHES && peer->in.position + 1 == header->slots &&
			   from->held == NULL;
		if (switches)
			break;
		if (slots <= 0 || (uint32_t)slots > header->slots - peer->in.position) {
			network_violate(from, slots == -ENOMEM ? -ENOMEM : -EPROTO,
					slots == -ENOMEM ? "it sent more than memory can hold"
							 : "it broke the protocol");
			break;
		}
		peer->in.position += (uint32_t)slots;
	}
	if (transport->user->settle(transport->context, peer) != 0)
		transport_fail(transport, peer, -ENOMEM, "it sent more than memory can hold");
	peer->section = NULL;
	peer->section_bytes = 0;
	if (switches && peer->state != PEER_FAILED)
		transport_take_switch(transport, peer);
}

void network_violate(struct network_peer *from, int failure, const char *reason)
{
	struct peer *peer = from->peer;

	if (peer->state == PEER_FAILED)
		return;
	transport_fail(from->network->transport, peer, failure, reason);
	peer->broken = false;
}

bool network_read_hello(const struct network *network, const struct frame_hello *hello,
			struct core_name *name)
{
	if (hello->length > CORE_NAME_MAX)
		return false;
	*name = (struct core_name){
		.provider = hello->provider, .length = hello->length, .flags = hello->flags};
	memcpy(name->bytes, hello->name, hello->length);
	return core_accepts(network->core, name);
}

void network_write_hello(const struct network *network, struct frame_hello *hello)
{
	const struct core_name *name = &network->core->name;

	*hello = (struct frame_hello){
		.provider = name->provider, .length = name->length, .flags = name->flags};
	memcpy(hello->name, name->bytes, name->length);
}

static struct network_peer *sender_of(struct network *network, uint64_t nonce)
{
	uint32_t index = directory_find(network->directory, nonce);
	struct peer *peer = index != DIRECTORY_NONE
				    ? network_meet(network->transport, network->transport->members + index)
				    : NULL;

	return peer != NULL ? peer->beyond : NULL;
}

/* Their messages are lost, so the user is told. */
static void say_of_strangers(struct network *network)
{
	struct region_error error;

	if (network->said_of_strangers || network->notice == NULL)
		return;
	(void)snprintf(error.text, sizeof(error.text),
		       "messages over the network came from more than %u peers whose addresses this process "
		       "does not know: messages from further peers are dropped. Insert the peers' addresses "
		       "before the peers send",
		       NETWORK_STRANGERS_MAX);
	network->notice(error.text);
	network->said_of_strangers = true;
}

/* A peer introduces itself: a peer that the application named, or a stranger. */
static struct network_peer *take_hello(struct network *network, const struct frame_header *header,
				       const struct frame_view *frame)
{
	struct frame_hello hello;
	struct core_name name;

	if (frame->length != sizeof(*header) + sizeof(hello))
		return NULL;
	memcpy(&hello, frame->bytes + sizeof(*header), sizeof(hello));
	if (!network_read_hello(network, &hello, &name))
		return NULL;
	if (directory_admit(network->directory, header->from, &name) == DIRECTORY_NONE) {
		if (network->directory->strangers == NETWORK_STRANGERS_MAX)
			say_of_strangers(network);
		return NULL;
	}
	struct network_peer *from = sender_of(network, header->from);
	if (from != NULL && !network_is_confirmed(from)) {
		network_find_first_contact(from);
		network_keepalive_take(network); /* the peer sent its first contact before this frame */
	}
	return from;
}

/*
 * Without room the next frame or the next check of the peers tries again. Only a peer whose window is used up
 * waits for the check.
 */
void network_tell_taken(struct network_peer *from)
{
	if (from->expected - from->told_taken >= NETWORK_WINDOW / 2 && from->peer->framed &&
	    network_send_notice(from, FRAME_TAKEN))
		from->told_taken = from->expected;
}

static void take_taken(struct network_peer *from, const struct frame_header *header)
{
	/* A late notice says less than is known, and says nothing. */
	if (header->stream == from->stream && header->sequence - from->taken <= from->sequence - from->taken)
		from->taken = header->sequence;
}

static void take_numbered(struct network_peer *from, const struct frame_header *header,
			  const struct frame_view *frame)
{
	struct transport *transport = from->network->transport;

	from->expected++;
	if (header->kind == FRAME_SLOTS) {
		take_slots(from, header, frame);
		if (from->peer->state != PEER_FAILED)
			network_tell_taken(from);
	} else if (header->kind == FRAME_LEAVE) {
		from->left = true;
		from->owes_left = !network_send_notice(from, FRAME_LEFT);
		transport_fail(transport, from->peer, -ECONNABORTED, "it left");
	}
}

/* Process a numbered frame when its turn comes. */
static void take_in_order(struct network_peer *from, const struct frame_header *header,
			  const struct frame_view *frame)
{
	struct network *network = from->network;

	/* A frame of the old stream, before a failover. */
	if (header->stream != from->stream) {
		network->strays++;
		return;
	}
	if (!from->peer->framed) {
		network_violate(from, -EPROTO, "it sends over the network what must come through the region");
		return;
	}
	/* The first frame of the new stream, which overtook the answer. */
	if (from->peer->failover == FAILOVER_ASKING)
		transport_finish_failover(network->transport, from->peer);
	if (header->sequence != from->expected) {
		if (!network_hold(from, frame, header->sequence))
			network_violate(from, -EPROTO, "frames from it were lost, or came twice");
		return;
	}
	take_numbered(from, header, frame);
	for (struct held_frame *next = NULL; (next = network_take_held(from)) != NULL;) {
		struct frame_view view = {next->bytes, next->length};
		struct frame_header held;
		memcpy(&held, next->bytes, sizeof(held));
		if (from->peer->state != PEER_FAILED)
			take_numbered(from, &held, &view);
		network_free_held(next);
	}
}

static void take_notice(struct network_peer *from, const struct frame_header *header,
			const struct frame_view *frame)
{
	switch (header->kind) {
	case FRAME_LEFT:
		from->left = true;
		break;
	case FRAME_REFUSE:
		transport_fail(from->network->transport, from->peer, -ECONNABORTED,
			       "it took this process for dead or hostile, and reads no more");
		break;
	case FRAME_PING:
		(void)network_send_notice(from, FRAME_PONG);
		break;
	case FRAME_PONG:
		from->proved = from->proved || from->asking != 0;
		break;
	case FRAME_SWITCHED:
		if (header->stream == from->stream)
			network_take_switched(from, header);
		break;
	case FRAME_FAILOVER:
		network_take_failover(from, header);
		break;
	case FRAME_DETACH:
		if (header->stream == from->stream)
			network_take_detach(from, header);
		break;
	case FRAME_REGION:
		network_take_region(from, header, frame);
		break;
	case FRAME_TAKEN:
		take_taken(from, header);
		break;
	default:
		break;
	}
}

static bool is_numbered(uint8_t kind)
{
	return kind == FRAME_SLOTS || kind == FRAME_HELLO || kind == FRAME_LEAVE;
}

/*
 * The sender knows our nonce, so it belongs to our job, but it has another version of Vicinal, and
 * neither end understands the other.
 */
static __attribute__((noinline)) void refuse_version(struct network *network,
						     const struct frame_header *header)
{
	struct network_peer *from = sender_of(network, header->from);
	struct region_error error;

	if (!network->said && network->notice != NULL) {
		(void)snprintf(error.text, sizeof(error.text),
			       "a peer on another host uses version %u of Vicinal's network protocol, and "
			       "this process version %u: install the same Vicinal on all hosts",
			       header->version, FRAME_VERSION);
		network->notice(error.text);
		network->said = true;
	}
	/* The answer shows the peer our version, so the peer fails in the same way. */
	if (from != NULL)
		network_violate(from, -EPROTO, "it has another version of Vicinal");
}

static void take_frame(struct network *network, const struct frame_view *frame)
{
	struct frame_header header;

	if (frame->length < sizeof(header))
		goto stray;
	memcpy(&header, frame->bytes, sizeof(header));
	if (header.magic != FRAME_MAGIC || header.to != network->nonce)
		goto stray;
	if (__builtin_expect(header.version != FRAME_VERSION, 0)) {
		refuse_version(network, &header);
		goto stray;
	}
	struct network_peer *from = header.kind == FRAME_HELLO ? take_hello(network, &header, frame)
				    : header.kind == FRAME_FAILOVER
					    ? network_peer_failing_over(network, &header, frame)
					    : sender_of(network, header.from);
	if (from == NULL)
		goto stray;
	from->spoke = true;
	if (from->peer->state == PEER_FAILED) {
		/*
		 * The peer may not know that it failed, and a leaving peer waits for this answer.
		 */
		if (header.kind == FRAME_LEAVE)
			from->owes_left = !network_send_notice(from, FRAME_LEFT);
		/* The peer must not wait for an answer to its FAILOVER. */
		if (header.kind == FRAME_FAILOVER && from->peer->reported)
			(void)network_send_notice(from, FRAME_REFUSE);
		return;
	}
	if (is_numbered(header.kind))
		take_in_order(from, &header, frame);
	else
		take_notice(from, &header, frame);
	return;
stray:
	network->strays++;
}

static void take_error(struct network *network)
{
	struct fi_cq_err_entry error = {0};

	if (fi_cq_readerr(network->core->cq, &error, 0) <= 0 || error.op_context == NULL)
		return;
	struct core_operation *operation = error.op_context;
	int code = error.err != 0 ? error.err : EIO;
	if (operation->use == CORE_SENDS)
		network_sent((struct frame_out *)(void *)operation, code);
	else if (operation->use == CORE_FETCHES)
		network_fetched(network, (struct fetch *)(void *)operation, code);
	else if (error.err != FI_ECANCELED)
		(void)network_post(network, (struct frame_in *)(void *)operation);
}

uint32_t network_poll(struct network *network)
{
	struct fi_cq_msg_entry entries[COMPLETIONS_PER_POLL];
	uint32_t frames = 0;

	if (network->unposted != NULL)
		post_again(network);
	ssize_t count = fi_cq_read(network->core->cq, entries, COMPLETIONS_PER_POLL);

	if (count == -FI_EAVAIL)
		take_error(network);
	for (ssize_t i = 0; i < count; i++) {
		struct core_operation *operation = entries[i].op_context;
		if (operation == NULL)
			continue;
		if (operation->use == CORE_SENDS) {
			network_sent((struct frame_out *)(void *)operation, 0);
			continue;
		}
		if (operation->use == CORE_FETCHES) {
			network_fetched(network, (struct fetch *)(void *)operation, 0);
			frames++;
			continue;
		}
		struct frame_in *frame = (struct frame_in *)(void *)operation;
		struct frame_view view = {.bytes = frame->bytes, .length = (uint32_t)sizeof(frame->bytes)};
		if (entries[i].len < view.length)
			view.length = (uint32_t)entries[i].len;
		frames++;
		take_frame(network, &view);
		post_later(network, frame);
	}
	if (network->backlog_count > 0)
		frames += network_ship_backlog(network);
	return frames;
}
