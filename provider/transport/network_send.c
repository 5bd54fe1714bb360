/* SPDX-License-Identifier: BSD-3-Clause */
/* network_send.c - slots of a ring into frames, and the completion of frames. */
#include "transport/network_transport.h"

/* The head of a frame during packing. */
struct packing {
	struct frame_header header;
	uint32_t length; /* of the head */
	uint32_t chunk;  /* CHUNK_NONE without a chunk */
	uint64_t index;  /* of the chunk's bytes in our pool */
};

static void write_header(struct network_peer *to, enum frame_kind kind, unsigned char *head,
			 struct packing *packing)
{
	packing->header.magic = FRAME_MAGIC;
	packing->header.version = FRAME_VERSION;
	packing->header.kind = (uint8_t)kind;
	packing->header.to = to->peer->nonce;
	packing->header.from = to->network->nonce;
	packing->header.sequence = to->sequence;
	packing->header.stream = to->stream;
	memcpy(head, &packing->header, sizeof(packing->header));
}

/* Append one slot to the head. Its words are private, because no other process writes this ring. */
static void pack_slot(const struct ring_slot *slot, uint64_t control, const struct slot_shape *shape,
		      unsigned char *head, struct packing *packing)
{
	struct frame_slot packed = {
		.control = (control & ~(uint64_t)CONTROL_LAP_MASK) | shape->payload,
		.word = shared_load_u64(&slot->word),
	};
	unsigned char *to = head + packing->length;

	memcpy(to, &packed, sizeof(packed));
	to += sizeof(packed);
	shared_copy_in(to, slot->payload, shape->payload);
	if (shape->chunk != SLOT_NO_CHUNK) {
		uint32_t named[2]; /* the chunk and its section offset */
		memcpy(named, to + shape->chunk, sizeof(named));
		memset(to + shape->chunk, 0, sizeof(named));
		packing->chunk = named[0];
		packing->index = named[1];
		packing->header.bytes = control_length(control);
	}
	packing->length += (uint32_t)sizeof(packed) + shape->payload;
	packing->header.slots++;
}

/* Pack as many whole groups of slots as fit, up to and including the first group with a chunk. */
static void pack(struct network_peer *to, unsigned char *head, struct packing *packing)
{
	const struct ring_out *ring = &to->peer->out;
	const struct transport_user *user = to->network->transport->user;
	bool last = false;

	for (uint32_t position = to->shipped; position != ring->position; position++) {
		const struct ring_slot *slot = &ring->slots[position & ring->mask];
		uint64_t control = shared_load_u64(&slot->control);
		struct slot_shape shape = user->shape(control);
		if (!shape.follows && (last || packing->header.slots > FRAME_SLOTS_MAX - FRAME_GROUP_MAX))
			break;
		pack_slot(slot, control, &shape, head, packing);
		last = packing->chunk != CHUNK_NONE;
	}
}

static struct frame_out *take_frame(struct network_peer *to)
{
	struct network *network = to->network;
	struct frame_out *frame = NULL;

	if (to->in_flight < network->free_count) {
		frame = network->free_frames;
		network->free_frames = frame->next;
		network->free_count--;
	} else if (to->own != NULL && !to->own_used) {
		frame = to->own;
		to->own_used = true;
	} else {
		return NULL;
	}
	frame->to = to;
	frame->chunk = CHUNK_NONE;
	return frame;
}

static void give_frame(struct frame_out *frame)
{
	struct network *network = frame->to->network;

	if (frame == frame->to->own) {
		frame->to->own_used = false;
		return;
	}
	frame->next = network->free_frames;
	network->free_frames = frame;
	network->free_count++;
}

/* Returns false if the core has no room now. Any other error ends the peer. */
static bool accepted(struct network_peer *to, ssize_t result)
{
	if (result == 0)
		return true;
	if (result != -FI_EAGAIN)
		network_fail_sending(to, (int)-result);
	return false;
}

/*
 * May the core copy one more frame? Of NETWORK_COPIED_MAX frames, two are not copied: their
 * completion shows that the frames before them were sent.
 */
static bool may_copy(const struct network_peer *to)
{
	uint32_t unknown = to->given - to->gone;

	return unknown < NETWORK_COPIED_MAX &&
	       unknown % (NETWORK_COPIED_MAX / 2) != NETWORK_COPIED_MAX / 2 - 1;
}

/* Send the head, followed by the bytes of the chunk. */
static bool send_frame(struct network_peer *to, unsigned char *head, const struct packing *packing)
{
	struct core *core = to->network->core;

	/*
	 * An injected message has no completion. A ping and the first frame need one, so they are
	 * never injected.
	 */
	if (packing->chunk == CHUNK_NONE && packing->length <= core->inject &&
	    packing->header.kind != FRAME_PING && packing->header.kind != FRAME_HELLO && may_copy(to)) {
		bool taken = accepted(to, fi_inject(core->endpoint, head, packing->length, to->address));
		to->given += taken;
		return taken;
	}
	struct frame_out *frame = take_frame(to);
	if (frame == NULL)
		return false;
	memcpy(frame->head, head, packing->length);
	frame->chunk = packing->chunk;
	frame->number = to->given;
	struct iovec pieces[2] = {
		{frame->head, packing->length},
		{(void *)(to->network->chunk_memory + packing->index), packing->header.bytes},
	};
	if (!accepted(to, fi_sendv(core->endpoint, pieces, NULL, packing->chunk != CHUNK_NONE ? 2 : 1,
				   to->address, frame))) {
		give_frame(frame);
		return false;
	}
	to->given++;
	to->in_flight++;
	return true;
}

/* Send our identity. */
static bool greet(struct network_peer *to)
{
	unsigned char head[sizeof(struct frame_header) + sizeof(struct frame_hello)];
	struct packing packing = {.length = sizeof(head), .chunk = CHUNK_NONE};
	struct frame_hello hello;

	network_write_hello(to->network, &hello);
	memcpy(head + sizeof(struct frame_header), &hello, sizeof(hello));
	write_header(to, FRAME_HELLO, head, &packing);
	if (!send_frame(to, head, &packing))
		return false;
	to->sequence++;
	return true;
}

static bool ship_one(struct network_peer *to)
{
	unsigned char head[FRAME_HEAD_MAX];
	struct packing packing = {.length = sizeof(struct frame_header), .chunk = CHUNK_NONE};

	pack(to, head, &packing);
	write_header(to, FRAME_SLOTS, head, &packing);
	if (!send_frame(to, head, &packing))
		return false;
	to->sequence++;
	to->shipped += packing.header.slots;
	/* The receiver's credit for our ring, which we write for it: the slots may be reused. */
	shared_store_u64(&to->credit.consumed, (uint64_t)to->peer->out.connection << 32 | to->shipped);
	return true;
}

/*
 * Send frames within `budget`, and reduce it by one for each. Returns whether nothing is left to
 * send.
 */
static bool ship_some(struct network_peer *to, uint32_t *budget)
{
	if (!network_make_reachable(to) || (to->sequence == 0 && !greet(to)))
		return false;
	for (; to->shipped != to->peer->out.position; (*budget)--)
		if (*budget == 0 || to->sequence - to->taken >= NETWORK_WINDOW || !ship_one(to))
			return false;
	return true;
}

static bool may_ship(const struct network_peer *to)
{
	return !to->network->lost && !to->backlogged && to->peer->state != PEER_FAILED;
}

static void append_backlog(struct network_peer *to)
{
	struct network *network = to->network;

	to->next_backlog = NULL;
	*(network->backlog_count++ == 0 ? &network->backlog : &network->backlog_last->next_backlog) = to;
	network->backlog_last = to;
	to->backlogged = true;
}

void network_leave_backlog(struct network_peer *to)
{
	struct network *network = to->network;
	struct network_peer *before = NULL;

	if (!to->backlogged)
		return;
	for (struct network_peer *peer = network->backlog; peer != to; peer = peer->next_backlog)
		before = peer;
	*(before == NULL ? &network->backlog : &before->next_backlog) = to->next_backlog;
	if (network->backlog_last == to)
		network->backlog_last = before;
	network->backlog_count--;
	to->backlogged = false;
}

void network_ship(struct peer *peer)
{
	struct network_peer *to = peer->network;
	uint32_t budget = NETWORK_RING_SLOTS;

	if (!may_ship(to))
		return;
	network_stay_busy(to->network);
	if (!ship_some(to, &budget) && peer->state != PEER_FAILED)
		append_backlog(to);
}

void network_ship_later(struct peer *peer)
{
	if (!may_ship(peer->network))
		return;
	network_stay_busy(peer->network->network);
	append_backlog(peer->network);
}

uint32_t network_ship_backlog(struct network *network)
{
	uint32_t budget = NETWORK_FRAMES_PER_POLL;

	/* Each peer has one turn at most. Peers without a turn come first next time. */
	for (uint32_t turns = network->backlog_count; turns > 0 && network->backlog != NULL && budget > 0;
	     turns--) {
		struct network_peer *to = network->backlog;
		network_leave_backlog(to);
		if (to->peer->state != PEER_FAILED && !ship_some(to, &budget) &&
		    to->peer->state != PEER_FAILED)
			append_backlog(to);
	}
	return NETWORK_FRAMES_PER_POLL - budget;
}

/* Without a request by the application, nothing is sent to a stranger's unproved address. */
static bool may_tell(struct network_peer *to)
{
	return !to->network->lost && (to->reachable || network_is_confirmed(to)) &&
	       network_make_reachable(to);
}

bool network_send_notice(struct network_peer *to, enum frame_kind kind)
{
	unsigned char head[sizeof(struct frame_header)];
	struct packing packing = {.length = sizeof(head), .chunk = CHUNK_NONE};

	if (!may_tell(to))
		return false;
	write_header(to, kind, head, &packing);
	if (kind == FRAME_SWITCHED || kind == FRAME_TAKEN) {
		packing.header.sequence = to->expected;
		memcpy(head, &packing.header, sizeof(packing.header));
	}
	if (!send_frame(to, head, &packing))
		return false;
	if (kind == FRAME_LEAVE)
		to->sequence++;
	return true;
}

bool network_send_detach(struct network_peer *to, bool heard)
{
	const struct attachment *attachment = to->peer->attachment;
	unsigned char head[sizeof(struct frame_header)];
	struct packing packing = {.length = sizeof(head), .chunk = CHUNK_NONE};

	if (to->network->lost || !network_make_reachable(to))
		return false;
	write_header(to, FRAME_DETACH, head, &packing);
	packing.header.sequence = heard;
	packing.header.bytes = attachment != NULL
				       ? network_tenancy(attachment->region, attachment->member->epoch)
				       : DETACH_ANY;
	memcpy(head, &packing.header, sizeof(packing.header));
	return send_frame(to, head, &packing);
}

bool network_send_region(struct network_peer *to, const struct member *self, uint32_t step)
{
	unsigned char head[sizeof(struct frame_header) + sizeof(struct frame_region)];
	struct packing packing = {.length = sizeof(head), .chunk = CHUNK_NONE};
	struct frame_region said = {
		.region = {self->region->id[0], self->region->id[1]},
		.nonce = self->nonce,
		.slot = self->slot,
		.epoch = self->epoch,
	};

	if (!may_tell(to))
		return false;
	memcpy(head + sizeof(struct frame_header), &said, sizeof(said));
	write_header(to, FRAME_REGION, head, &packing);
	packing.header.sequence = step;
	memcpy(head, &packing.header, sizeof(packing.header));
	return send_frame(to, head, &packing);
}

bool network_send_failover(struct network_peer *to, bool answers)
{
	const struct member *self = to->peer->attachment->member;
	unsigned char head[sizeof(struct frame_header) + sizeof(struct frame_failover)];
	struct packing packing = {.length = sizeof(head), .chunk = CHUNK_NONE};
	struct frame_failover failover = {
		.region = {self->region->id[0], self->region->id[1]},
		.slot = self->slot,
		.epoch = self->epoch,
	};

	network_write_hello(to->network, &failover.hello);
	memcpy(head + sizeof(struct frame_header), &failover, sizeof(failover));
	write_header(to, FRAME_FAILOVER, head, &packing);
	packing.header.sequence = answers;
	memcpy(head, &packing.header, sizeof(packing.header));
	return send_frame(to, head, &packing);
}

void network_sent(struct frame_out *frame, int error)
{
	struct network_peer *to = frame->to;

	struct frame_header header;

	memcpy(&header, frame->head, sizeof(header));
	to->greeted = to->greeted || (header.kind == FRAME_HELLO && error == 0);
	/* Frames to one peer complete in order. */
	if ((int32_t)(frame->number - to->gone) >= 0)
		to->gone = frame->number + 1;
	to->in_flight--;
	if (frame->chunk != CHUNK_NONE)
		chunk_return(&to->returns, frame->chunk);
	give_frame(frame);
	if (error != 0)
		network_fail_sending(to, error);
	/* The chunks could not be recalled while the core was still sending some of them. */
	if (to->in_flight == 0 && to->peer->state == PEER_FAILED && to->peer->reported)
		chunk_recall(to->peer->pool, &to->peer->account);
}
