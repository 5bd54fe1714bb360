/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * network_hold.c - frames that arrived before an earlier frame. They are copied, because the core's
 * receive buffers are shared by all peers, and a peer decides how long its frames wait. The number
 * of one peer's held frames is bounded, and so are the bytes of all held frames. If the bytes are
 * used up, the peer that holds most of them loses its connection, so that no peer takes the room of
 * another.
 */
#include "transport/network_transport.h"

#include <sys/mman.h>
#include <unistd.h>

void network_free_held(struct held_frame *frame)
{
	(void)munmap(frame, frame->mapped);
}

static void forget(struct network_peer *from, const struct held_frame *frame)
{
	from->held_bytes -= frame->mapped;
	from->network->held_bytes -= frame->mapped;
}

void network_drop_held(struct network_peer *from)
{
	while (from->held != NULL) {
		struct held_frame *frame = from->held;
		from->held = frame->next;
		forget(from, frame);
		network_free_held(frame);
	}
}

static struct network_peer *largest_holder(const struct network *network)
{
	const struct transport *transport = network->transport;
	struct network_peer *largest = NULL;

	for (uint32_t source = transport->members; source < transport->peer_end; source++) {
		struct network_peer *peer =
			transport->peers[source] != NULL ? transport->peers[source]->beyond : NULL;
		if (peer != NULL && (largest == NULL || peer->held_bytes > largest->held_bytes))
			largest = peer;
	}
	return largest;
}

/* Each round drops the frames of one peer, so there are at most as many rounds as peers. */
static void make_room(struct network_peer *from, size_t bytes)
{
	struct network *network = from->network;

	while (network->held_bytes > NETWORK_HELD_BYTES_MAX - bytes) {
		struct network_peer *largest = largest_holder(network);
		network_violate(largest, -EPROTO, "frames from it were lost");
		network_drop_held(largest);
	}
}

/* Not from the application's malloc(), which may place it in a heap of the region. */
static struct held_frame *copy_of(const struct frame_view *frame)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t bytes = (sizeof(struct held_frame) + frame->length + page - 1) / page * page;
	struct held_frame *copy =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (copy == MAP_FAILED)
		return NULL;
	copy->mapped = bytes;
	copy->length = frame->length;
	memcpy(copy->bytes, frame->bytes, frame->length);
	return copy;
}

bool network_hold(struct network_peer *from, const struct frame_view *frame, uint32_t sequence)
{
	if (sequence - from->expected > NETWORK_HELD_MAX)
		return false;
	for (const struct held_frame *held = from->held; held != NULL; held = held->next)
		if (held->sequence == sequence)
			return false;
	struct held_frame *copy = copy_of(frame);
	if (copy == NULL)
		return false;
	make_room(from, copy->mapped);
	if (from->peer->state == PEER_FAILED) {
		network_free_held(copy);
		return true;
	}
	copy->sequence = sequence;
	copy->next = from->held;
	from->held = copy;
	from->held_bytes += copy->mapped;
	from->network->held_bytes += copy->mapped;
	return true;
}

struct held_frame *network_take_held(struct network_peer *from)
{
	for (struct held_frame **link = &from->held; *link != NULL; link = &(*link)->next)
		if ((*link)->sequence == from->expected) {
			struct held_frame *frame = *link;
			*link = frame->next;
			forget(from, frame);
			return frame;
		}
	return NULL;
}

/*
 * Counts checks instead of time: if this process was stopped, the missing frame may be waiting in
 * the core.
 */
void network_check_gap(struct network_peer *from, uint64_t timeout)
{
	if (from->held == NULL || from->gap != from->expected) {
		from->gap = from->expected;
		from->gap_checks = 0;
		return;
	}
	if (++from->gap_checks > timeout / LIVENESS_INTERVAL)
		network_violate(from, -EPROTO, "frames from it were lost");
}
