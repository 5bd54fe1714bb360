/* SPDX-License-Identifier: BSD-3-Clause */
/* reading.c - see reading.h. */
#include "proto/messenger.h"

/*
 * The reads in progress from one peer: the fewest bytes that keep both sides busy. So the bytes that the
 * kernel holds between the two copies stay in a cache. Measured: docs/decisions/0010
 */
#define PIECE_BYTES ((uint64_t)128 << 10)
#define PIECES_AT_ONCE 4U

/* The next piece, contiguous in the buffer. */
static struct iovec next_piece(const struct reading *reading)
{
	uint64_t offset = reading->asked;
	uint64_t rest = reading->length - reading->asked;

	for (size_t i = 0; i < reading->to->count; i++) {
		const struct iovec *piece = &reading->to->pieces[i];
		if (offset >= piece->iov_len) {
			offset -= piece->iov_len;
			continue;
		}
		uint64_t length = piece->iov_len - offset < rest ? piece->iov_len - offset : rest;
		return (struct iovec){(char *)piece->iov_base + offset,
				      length < PIECE_BYTES ? length : PIECE_BYTES};
	}
	return (struct iovec){0};
}

/* Begins further reads, as far as there is room. */
static uint32_t ask(struct messenger *messenger, struct reading *reading)
{
	struct msg_peer *from = reading->from;
	uint32_t asked = 0;

	while (reading->asked < reading->length && from->reads < PIECES_AT_ONCE && !is_failed(from)) {
		struct iovec piece = next_piece(reading);
		int result = network_fetch(&from->peer, &reading->grant, reading->asked, piece.iov_base,
					   piece.iov_len, reading);
		if (result == -EAGAIN) {
			messenger->readings_wait = true;
			break;
		}
		if (result != 0) {
			transport_fail(messenger->transport, &from->peer, -ECONNRESET,
				       "the network connection to the peer broke");
			break;
		}
		reading->asked += piece.iov_len;
		reading->pieces++;
		from->reads++;
		asked++;
	}
	return asked;
}

/* The oldest reading comes first, so that it ends soonest. */
static uint32_t ask_all(struct messenger *messenger, const struct msg_peer *from)
{
	uint32_t asked = 0;

	for (struct match_link *link = messenger->readings.next; link != &messenger->readings;) {
		struct reading *reading = (struct reading *)(void *)link;
		link = link->next;
		if (!reading->abandoned && (from == NULL || reading->from == from))
			asked += ask(messenger, reading);
	}
	return asked;
}

void reading_begin(struct messenger *messenger, struct reading *reading, struct msg_peer *from,
		   const struct buffer *to, uint64_t length, const struct network_grant *grant,
		   reading_ended ended)
{
	*reading = (struct reading){
		.from = from,
		.to = to,
		.grant = {.key = grant->key, .address = grant->address},
		.length = length,
		.ended = ended,
	};
	match_append(&messenger->readings, &reading->link);
	(void)ask(messenger, reading);
}

static void end(struct messenger *messenger, struct reading *reading)
{
	match_unlink(&reading->link);
	reading->ended(messenger, reading);
}

void reading_piece_ended(void *context, void *cookie, size_t length, int error)
{
	struct messenger *messenger = context;
	struct reading *reading = cookie;
	struct msg_peer *from = reading->from;

	reading->pieces--;
	if (error == 0)
		reading->arrived += length;
	if (reading->abandoned) {
		if (reading->pieces == 0)
			end(messenger, reading);
		return;
	}
	from->reads--;
	if (error != 0)
		return; /* the peer failed: reading_abandon() follows */
	if (reading->arrived == reading->length)
		end(messenger, reading);
	(void)ask_all(messenger, from);
}

bool reading_abandon(struct messenger *messenger, struct reading *reading)
{
	/* From here on, the peer's count contains only other readings. */
	reading->from->reads -= reading->pieces;
	/* In a forked child the parent's core provider neither reports ends nor writes to memory. */
	reading->abandoned = reading->pieces > 0 && network_is_there(messenger->transport);
	if (!reading->abandoned)
		match_unlink(&reading->link);
	return reading->abandoned;
}

uint32_t reading_work(struct messenger *messenger)
{
	messenger->readings_wait = false;
	return ask_all(messenger, NULL);
}
