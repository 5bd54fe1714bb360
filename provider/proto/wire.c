/* SPDX-License-Identifier: BSD-3-Clause */
/* wire.c - which bytes of a slot are meaningful, for transports that copy slots elsewhere. */
#include "proto/wire.h"

static uint32_t rounded(uint64_t bytes)
{
	return bytes >= WIRE_INLINE_BYTES ? WIRE_INLINE_BYTES : ((uint32_t)bytes + 7) / 8 * 8;
}

static struct slot_shape with_chunk(size_t payload, size_t chunk)
{
	return (struct slot_shape){.payload = (uint32_t)payload, .chunk = (uint32_t)chunk};
}

static struct slot_shape without_chunk(uint64_t payload)
{
	return (struct slot_shape){.payload = rounded(payload), .chunk = SLOT_NO_CHUNK};
}

struct slot_shape wire_shape(uint64_t control)
{
	uint32_t flags = control_flags(control);
	uint64_t length = control_length(control);
	uint32_t data = flags & WIRE_DATA ? 8 : 0;
	uint32_t id = flags & WIRE_ACKNOWLEDGED ? 8 : 0;

	switch (control_kind(control)) {
	case WIRE_INLINE:
	case WIRE_SHORT:
		return without_chunk(data + id + length);
	case WIRE_CONTINUATION:
		return (struct slot_shape){
			.payload = WIRE_INLINE_BYTES, .chunk = SLOT_NO_CHUNK, .follows = true};
	case WIRE_EAGER:
		return with_chunk(sizeof(struct wire_eager), offsetof(struct wire_eager, chunk));
	case WIRE_RENDEZVOUS:
		return length > 0 ? with_chunk(sizeof(struct wire_rendezvous),
					       offsetof(struct wire_rendezvous, chunk))
				  : without_chunk(sizeof(struct wire_rendezvous));
	case WIRE_OFFER:
		return without_chunk(sizeof(struct wire_offer));
	case WIRE_EARLY:
	case WIRE_PIECE:
	case WIRE_REPLY_CHUNK:
		return with_chunk(sizeof(struct wire_piece), offsetof(struct wire_piece, chunk));
	case WIRE_ACKNOWLEDGE:
	case WIRE_RECLAIM:
	case WIRE_SWITCH:
	case WIRE_PAUSE:
	case WIRE_RESIZE:
		return without_chunk(0);
	case WIRE_WRITE:
		return without_chunk(8 + data + length);
	case WIRE_WRITE_CHUNK:
		return with_chunk(sizeof(struct wire_write), offsetof(struct wire_write, chunk));
	case WIRE_READ:
	case WIRE_DONE:
		return without_chunk(8);
	case WIRE_ATOMIC:
		return without_chunk(sizeof(struct wire_atomic) + length);
	case WIRE_ATOMIC_CHUNK:
		return with_chunk(sizeof(struct wire_atomic) + sizeof(struct wire_piece),
				  sizeof(struct wire_atomic) + offsetof(struct wire_piece, chunk));
	case WIRE_REPLY:
		return without_chunk(length);
	case WIRE_CORE_WRITE:
		return without_chunk(sizeof(struct wire_core_write));
	case WIRE_CORE_READ:
		return without_chunk(sizeof(struct wire_core_read));
	case WIRE_GRANT:
		return without_chunk(sizeof(struct wire_grant));
	case WIRE_RETURN:
		return without_chunk(0);
	case WIRE_ENDED:
		return without_chunk(8);
	default:
		return without_chunk(WIRE_INLINE_BYTES);
	}
}
