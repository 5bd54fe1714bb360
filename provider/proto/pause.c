/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pause.c - stops senders whose messages nobody receives, before private memory is used up.
 *
 * A sender that is paused keeps further messages in its send queue, and goes on with everything else:
 * answers, acknowledgements, pieces of large messages, one-sided operations. If instead its slots were left
 * unread, all that would wait behind them, and over the network there is no slot to leave unread.
 *
 *   receiver                                   sender
 *   too many messages wait: PAUSE 1 ────────▶  queues its messages
 *                                   ◀────────  messages that it sent before
 *   some were received: PAUSE 0     ────────▶  sends what is queued
 *
 * Both ends forget the pause when the peer fails or begins a new stream.
 */
#include "proto/messenger.h"

#include <stdio.h>

#include "transport/network_frame.h"

/*
 * What a network peer may send between our PAUSE and its stop: a window of frames, and the windows that it
 * was given while the PAUSE itself waited for room in our ring.
 */
#define LATE_WINDOWS 4U
#define LATE_MAX (LATE_WINDOWS * NETWORK_WINDOW * FRAME_SLOTS_MAX)
#define LATE_BYTES_MAX ((uint64_t)LATE_WINDOWS * NETWORK_WINDOW * FRAME_CHUNK_MAX)

static struct msg_peer *of_link(struct match_link *link)
{
	return (struct msg_peer *)(void *)((char *)link - offsetof(struct msg_peer, pausing.link));
}

static bool tell(struct messenger *messenger, struct msg_peer *to, bool pauses)
{
	return rendezvous_send_control(messenger, to,
				       &(struct control_slot){
					       .control = control_word(WIRE_PAUSE, 0, 0),
					       .word = pauses,
				       });
}

static void warn(struct messenger *messenger, const struct msg_peer *from)
{
	char text[256];

	if (!messenger->kept.told && messenger->kept.notice != NULL) {
		(void)snprintf(
			text, sizeof(text),
			"%u messages wait for their receives, %u of them from one peer: further messages of "
			"this peer wait until some are received. Post their receives first, or raise "
			"VICINAL_UNEXPECTED",
			messenger->kept.messages, from->kept);
		messenger->kept.notice(text);
	}
	messenger->kept.told = true;
}

/* Returns false without memory. */
static bool begin(struct messenger *messenger, struct msg_peer *from)
{
	if (from->pausing.told)
		return true;
	warn(messenger, from);
	if (!tell(messenger, from, true))
		return false;
	from->pausing.told = true;
	from->pausing.read = false;
	from->pausing.messages = from->peer.framed ? LATE_MAX : 0;
	from->pausing.bytes = LATE_BYTES_MAX;
	match_append(&messenger->kept.pausing, &from->pausing.link);
	return true;
}

static void end(struct msg_peer *from)
{
	from->pausing.told = false;
	match_unlink(&from->pausing.link);
}

/* Whether the peer has read our PAUSE, and all else that was sent to it through the region. */
static bool has_read(struct msg_peer *from)
{
	struct ring_out *ring = &from->peer.out;

	return rendezvous_sent_controls(from) && from->peer.network == NULL && from->peer.sending &&
	       ring_credit(ring) == RING_CREDIT_OK && ring->limit - ring->position == ring->mask + 1;
}

bool pause_admits_message(struct messenger *messenger, struct msg_peer *from)
{
	struct pausing *pausing = &from->pausing;

	if (!begin(messenger, from))
		return false;
	/*
	 * A ring keeps what is not read, so nothing is taken from it until the peer has stopped. Then no more
	 * than the ring holds can come, and behind it control slots.
	 */
	if (pausing->messages == 0 && !from->peer.framed && !pausing->read && has_read(from)) {
		pausing->read = true;
		/* The ring may go on in a longer one. */
		pausing->messages = RING_SLOTS_MAX;
	}
	if (pausing->messages == 0)
		return false;
	pausing->messages--;
	return true;
}

bool pause_admits_bytes(struct messenger *messenger, struct msg_peer *from, uint64_t bytes)
{
	if (!from->peer.framed || is_failed(from) || !begin(messenger, from) || bytes > from->pausing.bytes)
		return false;
	from->pausing.bytes -= bytes;
	return true;
}

/* Whether a quarter of the room is free, so that a pause does not end for a single message. */
static bool has_room(const struct kept *kept, const struct msg_peer *from)
{
	return from->kept + kept->messages < kept->messages_max - kept->messages_max / 4 &&
	       from->copied + kept->bytes <= kept->bytes_max - kept->bytes_max / 4;
}

void pause_end_some(struct messenger *messenger)
{
	struct match_link *link = messenger->kept.pausing.next;
	struct msg_peer *from = of_link(link);

	/* One peer for each message that was received: the peers take turns. */
	match_unlink(link);
	match_append(&messenger->kept.pausing, link);
	if (!has_room(&messenger->kept, from))
		return;
	end(from);
	if (!tell(messenger, from, false))
		transport_fail(messenger->transport, &from->peer, -ENOMEM,
			       "no memory is left to tell the peer that it may send");
}

int pause_arrive(struct messenger *messenger, struct msg_peer *from, uint64_t word)
{
	if (word > 1)
		return -EPROTO;
	from->paused = word != 0;
	from->peer.waits = from->paused || from->queue.count > 0;
	messenger->send_queues.polls_to_skip = 0;
	return 0;
}

void pause_forget(struct msg_peer *peer)
{
	if (peer->pausing.told)
		end(peer);
	peer->paused = false;
	peer->peer.waits = peer->queue.count > 0;
}
