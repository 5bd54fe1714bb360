/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * network.c - the hostile member in the network too: a core that loses what the victim sends and hands it
 * what the input says, and changes of the way that look right, or not.
 */
#include <rdma/fi_rma.h>

#include "fuzz/fuzz.h"
#include "path/move.h"
#include "path/network_path.h"

#define QUEUE 256U
#define PROVIDER 7U

static struct {
	struct core core;
	struct fi_info info;
	struct fi_domain_attr attributes;
	struct fid_ep endpoint;
	struct fid_cq cq;
	struct fid_av av;
	struct fid_domain domain;
	struct frame_in *posted[QUEUE];
	uint32_t posted_count;
	struct fi_cq_msg_entry completions[QUEUE];
	uint32_t completed;
	uint32_t refusals; /* so many sends find no room */
	struct directory directory;
} net;

static void complete(void *context, size_t length)
{
	require(net.completed < QUEUE, "the core's queue runs over");
	net.completions[net.completed++] = (struct fi_cq_msg_entry){.op_context = context, .len = length};
}

static bool has_room(void)
{
	if (net.refusals == 0 && net.completed < QUEUE / 2)
		return true;
	net.refusals -= net.refusals > 0;
	return false;
}

static ssize_t ep_sendv(struct fid_ep *fid, const struct iovec *pieces, void **descriptors, size_t count,
			fi_addr_t to, void *context)
{
	(void)fid;
	(void)pieces;
	(void)descriptors;
	(void)count;
	(void)to;
	if (!has_room())
		return -FI_EAGAIN;
	complete(context, 0);
	return 0;
}

static ssize_t ep_inject(struct fid_ep *fid, const void *bytes, size_t length, fi_addr_t to)
{
	(void)fid;
	(void)bytes;
	(void)length;
	(void)to;
	return has_room() ? 0 : -FI_EAGAIN;
}

static ssize_t ep_recv(struct fid_ep *fid, void *buffer, size_t length, void *descriptor, fi_addr_t from,
		       void *context)
{
	(void)fid;
	(void)buffer;
	(void)length;
	(void)descriptor;
	(void)from;
	require(net.posted_count < QUEUE, "a buffer is posted twice");
	net.posted[net.posted_count++] = context;
	return 0;
}

static ssize_t ep_read(struct fid_ep *fid, void *buffer, size_t length, void *descriptor, fi_addr_t from,
		       uint64_t address, uint64_t key, void *context)
{
	(void)fid;
	(void)descriptor;
	(void)from;
	(void)address;
	(void)key;
	if (!has_room())
		return -FI_EAGAIN;
	memset(buffer, 9, length); /* all of it must be the application's */
	complete(context, 0);
	return 0;
}

static ssize_t cq_read(struct fid_cq *fid, void *buffer, size_t count)
{
	size_t taken = net.completed < count ? net.completed : count;

	(void)fid;
	if (taken == 0)
		return -FI_EAGAIN;
	memcpy(buffer, net.completions, taken * sizeof(net.completions[0]));
	net.completed -= (uint32_t)taken;
	memmove(net.completions, net.completions + taken, net.completed * sizeof(net.completions[0]));
	return (ssize_t)taken;
}

static int av_insert(struct fid_av *fid, const void *address, size_t count, fi_addr_t *result, uint64_t flags,
		     void *context)
{
	(void)fid;
	(void)address;
	(void)flags;
	(void)context;
	*result = 0;
	return (int)count;
}

static int mr_close(struct fid *fid)
{
	(void)fid;
	return 0;
}

static struct fi_ops mr_ops = {.size = sizeof(struct fi_ops), .close = mr_close};
/* All the memory that is lent: nobody looks into it. */
static struct fid_mr lent = {.fid = {.ops = &mr_ops}};

static int mr_reg(struct fid *fid, const void *buffer, size_t length, uint64_t access, uint64_t offset,
		  uint64_t requested, uint64_t flags, struct fid_mr **opened, void *context)
{
	(void)fid;
	(void)buffer;
	(void)length;
	(void)access;
	(void)offset;
	(void)requested;
	(void)flags;
	(void)context;
	*opened = &lent;
	return 0;
}

static void close_core(struct core *core)
{
	(void)core;
	net.posted_count = 0;
	net.completed = 0;
}

static struct fi_ops_msg message_ops = {
	.size = sizeof(struct fi_ops_msg), .sendv = ep_sendv, .inject = ep_inject, .recv = ep_recv};
static struct fi_ops_rma rma_ops = {.size = sizeof(struct fi_ops_rma), .read = ep_read};
static struct fi_ops_cq cq_ops = {.size = sizeof(struct fi_ops_cq), .read = cq_read};
static struct fi_ops_av av_ops = {.size = sizeof(struct fi_ops_av), .insert = av_insert};
static struct fi_ops_mr domain_mr_ops = {.size = sizeof(struct fi_ops_mr), .reg = mr_reg};

/* The victim's, at the first step that needs it. */
static void open_network(struct fuzz *fuzz)
{
	if (fuzz->messenger->path->network != NULL)
		return;
	memset(&net, 0, sizeof(net));
	net.endpoint.msg = &message_ops;
	net.endpoint.rma = &rma_ops;
	net.cq.ops = &cq_ops;
	net.av.ops = &av_ops;
	net.domain.mr = &domain_mr_ops;
	net.info.domain_attr = &net.attributes;
	net.core = (struct core){
		.info = &net.info,
		.domain = &net.domain,
		.av = &net.av,
		.cq = &net.cq,
		.endpoint = &net.endpoint,
		.name = {.provider = PROVIDER, .length = 1},
		.inject = 128,
		.reads = true,
		.close = close_core,
	};
	require(network_open(fuzz->messenger->path, &net.core, &net.directory) == 0, "no memory");
}

void close_network(struct fuzz *fuzz)
{
	if (fuzz->messenger->path->network != NULL)
		network_lose(fuzz->messenger->path, "it is over");
}

void forget_network(void)
{
	directory_close(&net.directory);
}

/* ---- what the hostile member does there ---- */

static struct peer *hostile_peer(const struct fuzz *fuzz)
{
	return fuzz->messenger->path->peers[HOSTILE];
}

static void deliver(const unsigned char *bytes, size_t length)
{
	if (net.posted_count == 0 || net.completed == QUEUE)
		return;
	struct frame_in *frame = net.posted[--net.posted_count];
	memcpy(frame->bytes, bytes, length);
	complete(frame, length);
}

/* A slot as a frame has it. Returns where it ends; sets how many bytes of a chunk belong to it. */
static unsigned char *take_slot(struct fuzz_input *input, unsigned char *to, uint32_t *chunk)
{
	static const uint8_t kinds[] = {WIRE_INLINE, WIRE_EAGER, WIRE_RENDEZVOUS, WIRE_OFFER,
					WIRE_MOVE,   WIRE_PIECE, WIRE_READ,       WIRE_REPLY_CHUNK};
	uint8_t choice = take_u8(input);
	uint32_t kind = choice & 128 ? choice & 31 : kinds[choice % 8];
	uint32_t length = kind == WIRE_MOVE || kind == WIRE_OFFER ? 0 : take_u16(input) % 5000;
	uint64_t control = control_word(kind, kind == WIRE_MOVE ? 0 : take_u8(input) & 127, length);
	struct slot_shape shape = wire_shape(control);
	struct frame_slot slot = {control | shape.payload, kind == WIRE_MOVE ? 0 : take_u8(input)};

	memcpy(to, &slot, sizeof(slot));
	to += sizeof(slot);
	take_bytes(input, to, shape.payload);
	if (choice & 64 && shape.payload >= 24) /* a length that can be */
		memset(to + 18, 0, 6);
	if (shape.chunk != SLOT_NO_CHUNK)
		*chunk = length;
	return to + shape.payload;
}

static void send_frame(struct fuzz *fuzz, uint8_t style)
{
	static unsigned char frame[sizeof(struct frame_header) + 4 * (16 + FRAME_PAYLOAD_MOST) + 5000];
	struct fuzz_input *input = &fuzz->input;
	const struct peer *peer = hostile_peer(fuzz);
	const struct network_peer *beyond = peer != NULL ? peer->beyond : NULL;
	unsigned char *end = frame + sizeof(struct frame_header);
	uint32_t chunk = 0;
	struct frame_header header = {
		.magic = FRAME_MAGIC,
		.version = FRAME_VERSION,
		.kind = style & 8 ? take_u8(input) % 10 : FRAME_SLOTS,
		.slots = 1U + style % 4,
		.to = fuzz->messenger->path->member->nonce,
		.from = shared_load_u64(&section_header(fuzz->region, HOSTILE)->nonce) + (style & 128),
		.sequence = beyond != NULL ? beyond->expected : 0,
	};

	if (header.kind == FRAME_MOVED && beyond != NULL)
		header.sequence = beyond->sequence;
	if (style & 4)
		header.sequence += take_u8(input) % 4;
	for (uint32_t i = 0; header.kind == FRAME_SLOTS && i < header.slots; i++)
		end = take_slot(input, end, &chunk);
	if (header.kind == FRAME_HELLO) {
		struct frame_hello hello = {
			.provider = PROVIDER, .length = 1, .name = {style & 64 ? take_u8(input) : 0}};
		memcpy(end, &hello, sizeof(hello));
		end += sizeof(hello);
	}
	memset(end, 3, chunk);
	header.bytes = style & 16 ? take_u16(input) : chunk;
	memcpy(frame, &header, sizeof(header));
	deliver(frame, (size_t)(end - frame) + chunk);
}

/* A MOVE in the ring, where the victim looks next. */
static void push_move(struct fuzz *fuzz)
{
	if (fuzz->ring_slots == 0)
		return;
	struct ring_slot *slot =
		(struct ring_slot *)(void *)(region_section(fuzz->region, HOSTILE) + fuzz->ring_offset) +
		fuzz->ring_position % fuzz->ring_slots;
	uint32_t shift = (uint32_t)__builtin_ctz(fuzz->ring_slots);
	shared_store_u64(&slot->word, 0);
	shared_store_u64(&slot->control,
			 control_word(WIRE_MOVE, 0, 0) | ring_lap(fuzz->ring_position, shift));
	fuzz->ring_position++;
}

/* In the victim's region or out of it: whom, and where the hostile member says that it is. */
static void wish(struct fuzz *fuzz, uint8_t style)
{
	struct section_header *header = section_header(fuzz->region, HOSTILE);
	uint32_t epoch =
		style & 8 ? fuzz->messenger->path->member->epoch : fuzz->hostile_epoch + (style & 16);
	struct member_slot *slot = region_slot(fuzz->region, style & 8 ? VICTIM : HOSTILE);

	shared_store_u64(&slot->way, (uint64_t)epoch << 32 | (style & 32 ? 0 : 1));
	shared_store_u32(&header->core, style & 64 ? take_u32(&fuzz->input) : PROVIDER | UINT32_C(1) << 16);
}

void hostile_network(struct fuzz *fuzz)
{
	uint8_t style = take_u8(&fuzz->input);
	struct path *path = fuzz->messenger->path;

	open_network(fuzz);
	switch (take_u8(&fuzz->input) % 6) {
	case 0:
		wish(fuzz, style);
		break;
	case 1:
		path_begin_moves(path);
		break;
	case 2:
		net.refusals = style;
		break;
	case 3:
		push_move(fuzz);
		break;
	case 4:
		if (!path->network->lost && path->network->directory->count > 0)
			(void)network_look(path);
		break;
	default:
		send_frame(fuzz, style);
		break;
	}
}
