/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * frames.c - take_frame() of a frame of every length with any bytes, from a peer in any state:
 * network_receive.c, and the code of network_detach.c and network_failover.c that reads the frame. Only
 * `length` bytes of the frame exist: memory behind them is uninitialized, and copying it raises an alarm.
 *
 * Lengths at which the slots may end are taken one by one, because Eva knows no relation between two words.
 * All longer lengths are taken at once.
 */
#include <string.h>

#include "__fc_builtin.h"

/* Eva takes a copy of no bytes from behind the last one for a fault. */
static void *copy(void *to, const void *from, size_t length)
{
	return length > 0 ? memcpy(to, from, length) : to;
}
#define memcpy copy

/* The contract that prove_slot() proves, and that the analysis of take_frame() uses. */
/*@ assigns *slot \from from[0 .. rest - 1];
    assigns \result \from rest, from[0 .. rest - 1];
    ensures 0 <= \result <= rest; */
static size_t unpack_slot(const unsigned char *from, size_t rest, struct ring_slot *slot);

#include "transport/network_receive.c"

/* The maximum length of a slot, and of a frame of a kind that has neither slots nor a chunk. */
#define SLOT_MAX (sizeof(struct frame_slot) + FRAME_PAYLOAD_MAX)
#define LENGTHS_MAX (sizeof(struct frame_header) + sizeof(struct frame_failover) + 1)

static struct ring_slot slots[NETWORK_RING_SLOTS];
static struct fi_info info;
static struct credit_line unread;
static struct network_peer beyond;
static struct peer peer;
static struct peer *peers[4];
static struct member member;
static struct region region;
static unsigned char memory[REGION_PAGE * 2];
static unsigned char frame_memory[FRAME_MAX];
static unsigned char held_memory[sizeof(struct held_frame) + FRAME_MAX];
static struct core core;
static struct directory directory;
static struct transport transport;
static struct network network;

/* ---- functions of other files that take_frame() calls: they may do anything with their arguments ---- */

static int handle(void *user, struct peer *from, uint64_t control)
{
	(void)user;
	(void)control;
	if (any_u32)
		from->state = PEER_FAILED;
	return (int)any_u32;
}

static int settle(void *user, struct peer *from)
{
	(void)user;
	(void)from;
	return (int)any_u32;
}

static const struct transport_user user = {.arrive = handle, .settle = settle};

uint32_t directory_find(const struct directory *known, uint64_t nonce)
{
	(void)known;
	(void)nonce;
	return any_u32;
}

uint32_t directory_admit(struct directory *known, uint64_t nonce, const struct core_name *name)
{
	(void)nonce;
	(void)known;
	(void)name->length;
	return any_u32;
}

/* Frames that arrive too early are copied and handled later: any frame of the maximum length. */
bool network_hold(struct network_peer *from, const struct frame_view *frame, uint32_t sequence)
{
	(void)sequence;
	(void)frame->length;
	return from->network != NULL && any_u32;
}

struct held_frame *network_take_held(struct network_peer *from)
{
	struct held_frame *held = (struct held_frame *)(void *)held_memory;

	(void)from->held;
	Frama_C_make_unknown((char *)held_memory, sizeof(held_memory));
	held->length = FRAME_MAX;
	return any_u32 ? held : NULL;
}

void network_free_held(struct held_frame *frame)
{
	(void)frame->mapped;
}

bool network_is_confirmed(const struct network_peer *from)
{
	return from->network != NULL && any_u32;
}

void network_find_first_contact(struct network_peer *from)
{
	(void)from->network;
}

void network_keepalive_take(struct network *self)
{
	(void)self->transport;
}

static struct peer *anybody(void)
{
	return any_u32 ? &peer : NULL;
}

struct peer *network_meet(struct transport *self, uint32_t source)
{
	(void)self;
	(void)source;
	return anybody();
}

struct peer *transport_meet(struct transport *self, uint32_t source, uint32_t epoch, uint64_t nonce)
{
	(void)self;
	(void)source;
	(void)epoch;
	(void)nonce;
	return anybody();
}

struct peer *transport_peer_in(const struct attachment *attachment, uint32_t slot, uint32_t epoch)
{
	(void)epoch;
	(void)member_is_alias(attachment->region, slot);
	return anybody();
}

bool transport_reattach_peer(struct attachment *attachment, struct peer *from, uint32_t slot, uint32_t epoch,
			     uint64_t nonce)
{
	(void)attachment->region;
	(void)from->state;
	(void)slot;
	(void)epoch;
	(void)nonce;
	return any_u32;
}

void transport_fail(struct transport *self, struct peer *from, int failure, const char *reason)
{
	(void)self;
	(void)reason;
	from->state = PEER_FAILED;
	from->failure = failure;
}

void transport_break(struct transport *self, struct peer *from, int failure, const char *reason)
{
	transport_fail(self, from, failure, reason);
}

bool network_send_notice(struct network_peer *to, enum frame_kind kind)
{
	(void)kind;
	return to->network != NULL && any_u32;
}

bool network_send_detach(struct network_peer *to, bool heard)
{
	return network_send_notice(to, heard ? FRAME_DETACH : FRAME_DETACH);
}

bool network_send_region(struct network_peer *to, const struct member *self, uint32_t step)
{
	(void)self->slot;
	(void)step;
	return network_send_notice(to, FRAME_REGION);
}

bool network_send_failover(struct network_peer *to, bool answers)
{
	(void)answers;
	(void)to->peer->attachment->member->slot;
	return network_send_notice(to, FRAME_FAILOVER);
}

void network_take_switched(struct network_peer *from, const struct frame_header *header)
{
	(void)header->sequence;
	from->switched = true;
}

void network_stay_busy(struct network *self)
{
	self->busy = true;
}

void network_ship(struct peer *from)
{
	(void)from->network->network;
}

bool network_attach(struct transport *self, struct peer *from)
{
	(void)self;
	if (from->beyond == NULL && any_u32)
		from->beyond = &beyond;
	return from->beyond != NULL;
}

void network_enter(struct peer *from)
{
	from->network = from->beyond;
}

void transport_take_switch(struct transport *self, struct peer *from)
{
	(void)self;
	from->framed = false;
}

void transport_finish_failover(struct transport *self, struct peer *from)
{
	(void)self;
	from->failover = FAILOVER_DONE;
}

struct peer *transport_meet_without_region(struct transport *self, uint32_t source, uint32_t epoch,
					   uint64_t nonce, const struct member_core *where)
{
	(void)self;
	(void)source;
	(void)epoch;
	(void)nonce;
	(void)where->length;
	return anybody();
}

void transport_set_core_address(struct peer *from, const struct member_core *where)
{
	if (where->length > 0 && where->length <= MEMBER_CORE_MAX)
		from->where = *where;
}

uint64_t monotonic_now(void)
{
	return any_u64;
}

/* ---- any frame, any peer ---- */

static void open_transport(void)
{
	memset(&beyond, 0, sizeof(beyond));
	memset(&peer, 0, sizeof(peer));
	memset(&network, 0, sizeof(network));
	region.base = memory;
	region.members = 2;
	region.sections_offset = REGION_PAGE;
	region.section_bytes = REGION_PAGE / 2;
	member.region = &region;
	transport.attachments[0].transport = &transport;
	transport.attachments[0].region = &region;
	transport.attachments[0].member = &member;
	transport.attachment_count = 1;
	transport.members = 2;
	transport.peers = peers;
	transport.user = &user;
	transport.network = &network;
	network.transport = &transport;
	core.info = &info;
	info.addr_format = any_u32;
	network.core = &core;
	network.directory = &directory;
	network.slots = slots;
	network.unread = &unread;
	beyond.network = &network;
	beyond.peer = &peer;
	beyond.detach_said = (enum detach_progress)(any_u32 % 3);
	beyond.detach_heard = (enum detach_progress)(any_u32 % 3);
	beyond.stream = (uint16_t)any_u32;
	beyond.expected = any_u32;
	beyond.switched = any_u32;
	beyond.asking = any_u64;
	peer.beyond = &beyond;
	peer.network = any_u32 ? &beyond : NULL;
	peer.attachment = any_u32 ? &transport.attachments[0] : NULL;
	peer.state = (enum peer_state)(any_u32 % 3);
	peer.failover = (enum peer_failover)(any_u32 % 4);
	peer.framed = any_u32;
	peer.receiving = any_u32;
	peer.switching = any_u32;
}

/* A frame of `length` bytes, which are the last of their memory. */
static void take(uint8_t kind, uint32_t length)
{
	const struct frame_view frame = {frame_memory + sizeof(frame_memory) - length, length};

	Frama_C_make_unknown((char *)frame_memory, sizeof(frame_memory));
	open_transport();
	if (length > offsetof(struct frame_header, kind))
		frame_memory[sizeof(frame_memory) - length + offsetof(struct frame_header, kind)] = kind;
	take_frame(&network, &frame);
}

/* take_frame(), of every kind. Longer frames have the maximum length. */
void prove(void)
{
	//@ loop unroll 20;
	for (uint32_t kind = 0; kind <= FRAME_REGION + 1; kind++) {
		//@ loop unroll 200;
		for (uint32_t length = 0; length <= LENGTHS_MAX; length++)
			take((uint8_t)kind, length);
		take((uint8_t)kind, FRAME_MAX);
	}
}

/*
 * unpack_slot(), of every rest of a frame. Rests shorter than the longest slot are taken one by one, as the
 * last bytes of memory.
 */
void prove_slot(void)
{
	struct ring_slot slot;
	uint64_t longer = any_u64;

	//@ loop unroll 100;
	for (size_t rest = 0; rest <= SLOT_MAX; rest++) {
		Frama_C_make_unknown((char *)frame_memory, sizeof(frame_memory));
		size_t taken = unpack_slot(frame_memory + sizeof(frame_memory) - rest, rest, &slot);
		//@ assert taken <= rest;
	}
	if (longer > SLOT_MAX) {
		size_t taken = unpack_slot(frame_memory + sizeof(frame_memory) - SLOT_MAX, longer, &slot);
		//@ assert taken <= SLOT_MAX;
	}
}
