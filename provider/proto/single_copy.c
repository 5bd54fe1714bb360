/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * single_copy.c - the two ends of a message meet: see single_copy.h, which also explains why it is correct.
 */
#include "proto/messenger.h"

/*
 * An end claims a part of the gap between the two ends, so that both finish at about the same time, and
 * claims are few while the gap is large. A claim through the kernel costs two system calls besides the copy,
 * so it is longer. In the region other sizes made no difference, through the kernel they do:
 * docs/decisions/0007. No claim is so long that small messages wait for it.
 */
#define CLAIM_MIN_REGION 16384U
#define CLAIM_MAX_REGION 65536U
#define CLAIM_SHARE_REGION 4U
#define CLAIM_MIN_PROCESS 65536U
#define CLAIM_MAX_PROCESS 262144U
#define CLAIM_SHARE_PROCESS 2U
#define CLAIM_UNIT 4096U

/* The other process's line is read at this many polls in a row, and then at one of as many. */
#define POLLS_IN_A_ROW 64U

static uint64_t next_claim(const struct single_copy *copy, uint64_t gap)
{
	bool process = copy->method == WIRE_BY_PROCESS;
	uint64_t least = process ? CLAIM_MIN_PROCESS : CLAIM_MIN_REGION;
	uint64_t most = process ? CLAIM_MAX_PROCESS : CLAIM_MAX_REGION;
	uint64_t share = process ? CLAIM_SHARE_PROCESS : CLAIM_SHARE_REGION;
	uint64_t part = gap / share / CLAIM_UNIT * CLAIM_UNIT;

	if (part < least)
		part = least;
	if (part > most)
		part = most;
	return gap < part + least / 2 ? gap : part;
}

/* The cost of `length` bytes in a poll's budget, which counts pieces of the largest chunks. */
static uint32_t cost_of(uint64_t length)
{
	return (uint32_t)((length + CHUNK_LARGE - 1) / CHUNK_LARGE);
}

/* This end's line in the section, and in the process's record. */
static struct transfer_line *region_line(const struct messenger *messenger, const struct single_copy *copy)
{
	const struct transport *transport = messenger->transport;

	return section_transfer(transport->attachments[0].region, transport->attachments[0].member->slot,
				transfer_index(copy->own));
}

static struct process_line *process_line(const struct messenger *messenger, const struct single_copy *copy)
{
	return &messenger->single->offer.record->transfers[transfer_index(copy->own)].line;
}

/*
 * Stores this end's claim, with a full fence, so that the other end sees the claim before this end reads the
 * other's line.
 */
static void claim(const struct messenger *messenger, const struct single_copy *copy, uint64_t claimed)
{
	if (copy->method == WIRE_BY_REGION)
		transfer_claim(region_line(messenger, copy), claimed);
	else
		atomic_store_explicit(&process_line(messenger, copy)->claimed, claimed, memory_order_relaxed);
	transfer_fence();
}

static void done(const struct messenger *messenger, const struct single_copy *copy, uint64_t until)
{
	if (copy->method == WIRE_BY_REGION)
		transfer_done(region_line(messenger, copy), until);
	else
		atomic_store_explicit(&process_line(messenger, copy)->done, until, memory_order_release);
}

/*
 * Withdraws the claim, because it is not copied. Stores `done` again: the line may still contain the whole
 * message's length, of which not all is wanted, and so seem to claim the rest.
 */
static void withdraw(const struct messenger *messenger, const struct single_copy *copy)
{
	claim(messenger, copy, copy->mine);
	done(messenger, copy, copy->mine);
}

/* The result of reading the other's line, or of a copy that includes it. */
enum meeting {
	MEETING_GOES_ON,
	MEETING_UNCLEAR, /* nothing was learned: read again */
	MEETING_ENDED,   /* the other end closed its line or is gone */
	MEETING_REFUSED, /* the kernel refuses to copy */
};

/* Describes `length` bytes at `offset` as pieces for a system call. Returns the number of pieces. */
static size_t slice(const struct buffer *buffer, uint64_t offset, uint64_t length, struct iovec *pieces)
{
	size_t count = 0;

	for (size_t i = 0; length > 0 && i < buffer->count; i++) {
		uint64_t available = buffer->pieces[i].iov_len;
		if (offset >= available) {
			offset -= available;
			continue;
		}
		uint64_t part = available - offset < length ? available - offset : length;
		pieces[count++] = (struct iovec){(char *)buffer->pieces[i].iov_base + offset, part};
		length -= part;
		offset = 0;
	}
	return count;
}

/* Takes over the other end's words if they are within bounds. Returns false otherwise. */
static bool believe(struct single_copy *copy, uint64_t claimed, uint64_t until, bool of_sender)
{
	/* The sender begins with the whole message, of which the receiver may not want all. */
	claimed = claimed > copy->end ? copy->end : claimed;
	until = until > copy->end ? copy->end : until;
	if (claimed < copy->first || (of_sender && (until < claimed || until > copy->theirs_done)))
		return false;
	copy->theirs_claimed = claimed;
	copy->theirs_done = until;
	return true;
}

static enum meeting poll_other(struct messenger *messenger, struct single_copy *copy,
			       const struct msg_peer *other, bool of_sender, bool *nonsense)
{
	uint64_t claimed = 0;
	uint64_t until = 0;

	if (copy->method == WIRE_BY_REGION) {
		const struct transfer_line *line = section_transfer(
			messenger->transport->attachments[0].region, copy->slot, transfer_index(copy->other));
		/*
		 * If the peer is not intact, a successor has the section, and its lines are not this
		 * message's.
		 */
		if (!transfer_read(line, copy->other, &claimed, &until) || !transport_intact(&other->peer))
			return MEETING_ENDED;
	} else {
		struct process_snapshot seen;
		switch (process_read(&copy->process, NULL, 0, NULL, 0, 0, transfer_index(copy->other), true,
				     &seen)) {
		case PROCESS_GOOD:
			break;
		case PROCESS_CHANGING:
			return MEETING_UNCLEAR;
		case PROCESS_REFUSED:
			return MEETING_REFUSED;
		default:
			return MEETING_ENDED;
		}
		if (seen.id != copy->other)
			return MEETING_ENDED;
		claimed = seen.claimed;
		until = seen.done;
	}
	*nonsense = !believe(copy, claimed, until, of_sender);
	return MEETING_GOES_ON;
}

/* ---- the sender, from the end ---- */

/*
 * Copies into the receiver's heap, whose lines may be in the receiver's cache. Stores that bypass the cache
 * are faster if the two caches are far from each other, and slower otherwise: see copy_method.h.
 */
static void write_to_heap(const struct send *send, uint64_t from, uint64_t length)
{
	struct copy_methods *methods = &send->to->single_copy_methods;
	shared_bytes *to = send->copy->view + from;

	if (!buffer_in_one(&send->buffer, from, length) || length < COPY_METHODS_MEASURED_BYTES) {
		buffer_to_region(&send->buffer, from, to, length);
		return;
	}
	uint64_t began = copy_methods_clock();
	if (methods->method == COPY_PAST_CACHE)
		copy_past_cache_out(to, buffer_at(&send->buffer, from), length);
	else
		shared_copy_out(to, buffer_at(&send->buffer, from), length);
	copy_methods_copied(methods, copy_methods_clock() - began, (uint32_t)length);
}

static enum meeting write_part(const struct send *send, uint64_t from, uint64_t length)
{
	const struct single_copy *copy = send->copy;

	if (copy->method == WIRE_BY_REGION) {
		write_to_heap(send, from, length);
		return MEETING_GOES_ON;
	}
	struct iovec here[BUFFER_PIECES];
	struct iovec there[BUFFER_PIECES];
	size_t here_count = slice(&send->buffer, from, length, here);
	size_t there_count = slice(&copy->there, from, length, there);
	if (process_write(&copy->process, here, here_count, there, there_count, length) == PROCESS_GOOD)
		return MEETING_GOES_ON;
	single_copy_refuse_process(send->to);
	return MEETING_REFUSED;
}

/* Claims a part, reads the other's line, and copies. Returns false if this end has nothing more to do. */
static bool push_part(struct messenger *messenger, struct send *send)
{
	struct single_copy *copy = send->copy;
	bool nonsense = false;

	/* This end's line is in its own section. */
	if (copy->mine <= copy->theirs_claimed || !transport_holds_slot(&send->to->peer))
		return false;
	uint64_t length = next_claim(copy, copy->mine - copy->theirs_claimed);
	uint64_t from = copy->mine - length;
	claim(messenger, copy, from);
	enum meeting meeting = poll_other(messenger, copy, send->to, false, &nonsense);
	if (meeting == MEETING_GOES_ON && !nonsense && copy->theirs_claimed <= from)
		meeting = write_part(send, from, length);
	else if (meeting == MEETING_GOES_ON && !nonsense)
		meeting = MEETING_UNCLEAR; /* the receiver was faster, and the gap is smaller */
	if (meeting != MEETING_GOES_ON || nonsense) {
		withdraw(messenger, copy);
		if (nonsense)
			transport_fail(messenger->transport, &send->to->peer, -EPROTO,
				       "the peer claimed bytes that are not in the message");
		return meeting == MEETING_UNCLEAR && !nonsense;
	}
	done(messenger, copy, from);
	copy->mine = from;
	return true;
}

uint32_t single_copy_push(struct messenger *messenger, struct send *send, uint32_t budget)
{
	struct single_copy *copy = send->copy;

	while (copy->copies && budget > 0) {
		uint64_t before = copy->mine;
		copy->copies = push_part(messenger, send);
		uint32_t cost = 1 + cost_of(before - copy->mine);
		budget = cost < budget ? budget - cost : 0;
	}
	if (!copy->copies) {
		/* The receiver copies the rest, and acknowledges when it has everything. */
		match_unlink(&send->link);
		match_append(&messenger->awaiting, &send->link);
	}
	return budget;
}

/* ---- the receiver, from the beginning ---- */

static enum meeting read_part(struct messenger *messenger, struct receive *receive, uint64_t length,
			      bool *nonsense)
{
	struct single_copy *copy = receive->copy;

	if (copy->method == WIRE_BY_REGION) {
		if (copy->view == NULL)
			return MEETING_REFUSED; /* `copies` implies a view */
		/* The sender may have just written these bytes, so copy by lines: see copy_method.h. */
		if (buffer_in_one(&receive->buffer, copy->mine, length))
			copy_linewise_in(buffer_at(&receive->buffer, copy->mine), copy->view + copy->mine,
					 length);
		else
			(void)buffer_from_region(&receive->buffer, copy->mine, copy->view + copy->mine,
						 length);
		/* Also tells whether the bytes still were the message's when they were copied. */
		shared_fence_loads();
		return poll_other(messenger, copy, receive->from, true, nonsense);
	}
	struct process_snapshot seen;
	struct iovec here[BUFFER_PIECES];
	struct iovec there[BUFFER_PIECES];
	size_t here_count = slice(&receive->buffer, copy->mine, length, here);
	size_t there_count = slice(&copy->there, copy->mine, length, there);
	/* This may be the last part: then the line that is read after it may show that all is done. */
	bool last = copy->mine + length >= copy->theirs_claimed;
	switch (process_read(&copy->process, here, here_count, there, there_count, length,
			     transfer_index(copy->other), last, &seen)) {
	case PROCESS_GOOD:
		break;
	case PROCESS_CHANGING:
		return seen.id == copy->other ? MEETING_UNCLEAR : MEETING_ENDED;
	case PROCESS_REFUSED:
		return MEETING_REFUSED;
	default:
		return MEETING_ENDED;
	}
	if (seen.id != copy->other)
		return MEETING_ENDED;
	/* A line that is read once may be inconsistent. It only helps to choose the next part. */
	if (!last) {
		if (seen.claimed >= copy->first && seen.claimed <= copy->end)
			copy->theirs_claimed = seen.claimed;
		return MEETING_UNCLEAR;
	}
	*nonsense = !believe(copy, seen.claimed, seen.done, true);
	return MEETING_GOES_ON;
}

/* Continues in pieces after the bytes copied so far. */
static void resume(struct messenger *messenger, struct single_copy *copy)
{
	struct receive *receive = copy->receive;

	copy->resumed = true;
	match_unlink(&copy->link);
	messenger->copying--;
	/*
	 * At least the last byte is sent as a piece, whichever end copied it. The sender sends it after
	 * RESUME, when it no longer writes to the buffer.
	 */
	if (copy->mine == copy->end)
		copy->mine--;
	if (receive->arrived == receive->early)
		receive->arrived = copy->mine;
	if (!rendezvous_resume(messenger, receive, copy->mine))
		transport_fail(messenger->transport, &receive->from->peer, -ENOMEM,
			       "no memory is left to answer the peer");
}

/*
 * Claims a part, copies and reads the other's line, or only reads it. Returns the cost in the budget; 0 if
 * nothing was copied.
 */
static uint32_t pull_part(struct messenger *messenger, struct single_copy *copy)
{
	struct receive *receive = copy->receive;
	struct msg_peer *from = receive->from;
	enum meeting meeting = MEETING_GOES_ON;
	bool nonsense = false;
	uint32_t copied = 0;

	if (!transport_holds_slot(&from->peer))
		return 0;
	if (copy->copies && copy->mine < copy->theirs_claimed) {
		uint64_t length = next_claim(copy, copy->theirs_claimed - copy->mine);
		copy->sealed = false;
		copy->polls = 0;
		claim(messenger, copy, copy->mine + length);
		meeting = read_part(messenger, receive, length, &nonsense);
		if (meeting == MEETING_GOES_ON || meeting == MEETING_UNCLEAR) {
			copy->mine += length;
			copied = cost_of(length);
		}
	} else {
		copy->polls++;
		if (copy->method == WIRE_BY_PROCESS && copy->polls > POLLS_IN_A_ROW &&
		    copy->polls % POLLS_IN_A_ROW != 0)
			return 0;
		meeting = poll_other(messenger, copy, from, true, &nonsense);
	}
	if (nonsense) {
		transport_fail(messenger->transport, &from->peer, -EPROTO,
			       "the peer claimed bytes that are not in the message");
		return copied;
	}
	if (meeting == MEETING_ENDED || meeting == MEETING_REFUSED) {
		if (copy->method == WIRE_BY_PROCESS)
			single_copy_refuse_process(from);
		resume(messenger, copy);
		return copied;
	}
	if (meeting == MEETING_UNCLEAR)
		return copied;
	copy->sealed = copy->sealed || copy->mine <= copy->theirs_claimed;
	copy->finished = copy->mine >= copy->theirs_done &&
			 (copy->sealed || copy->theirs_claimed == copy->theirs_done);
	return copied;
}

static uint32_t pull(struct messenger *messenger, struct single_copy *copy, uint32_t budget)
{
	uint32_t copied = 0;

	while (copied < budget && !copy->finished && !copy->resumed && !is_failed(copy->receive->from)) {
		uint32_t now = pull_part(messenger, copy);
		copied += now;
		if (now == 0)
			break;
	}
	if (copy->finished) {
		match_unlink(&copy->link);
		messenger->copying--;
		rendezvous_end_if_complete(messenger, copy->receive);
	}
	return copied;
}

/* ---- failures in the middle ---- */

/*
 * A sender that broke the protocol can claim for ever that it writes, and can write to this process's heap
 * anyway. So its receive ends after this time. A sender that failed otherwise may be paused in the middle of
 * a part. Its receive ends after the timeout of a silent peer.
 */
#define LIAR_NANOSECONDS UINT64_C(1000000000)

/* Whether the sender lives. Rarely asks the kernel. */
static bool lives(const struct transport *transport, struct single_copy *copy, uint64_t now)
{
	const struct member *self = transport->attachments[0].member;
	struct last_heartbeat *last_heartbeat = &copy->receive->from->peer.last_heartbeat;
	enum member_state state = member_check_heartbeat(self, copy->slot, copy->epoch, last_heartbeat, now,
							 transport->timeout);

	if (state == MEMBER_QUIET && now >= copy->next_question) {
		copy->next_question = now + LIVENESS_INTERVAL;
		state = member_observe(self, copy->slot, copy->epoch, last_heartbeat, now,
				       transport->timeout);
	}
	return state == MEMBER_ALIVE || state == MEMBER_QUIET;
}

/*
 * may_write() for a buffer in this process's heap. A dead sender writes no more; transport.h describes how
 * death is detected.
 */
static bool may_write_in_region(const struct messenger *messenger, struct single_copy *copy)
{
	const struct transport *transport = messenger->transport;
	uint64_t claimed = 0;
	uint64_t until = 0;

	/* After an eviction or a fork, the section is another's. */
	return !transport->attachments[0].evicted &&
	       transfer_read(section_transfer(transport->attachments[0].region, copy->slot,
					      transfer_index(copy->other)),
			     copy->other, &claimed, &until) &&
	       claimed < until && lives(transport, copy, monotonic_now());
}

/* Whether the sender may be writing to the receive's buffer. This end's line is already closed. */
static bool may_write(const struct messenger *messenger, struct single_copy *copy)
{
	struct process_snapshot seen;

	if (copy->method == WIRE_BY_REGION)
		return may_write_in_region(messenger, copy);
	switch (process_read(&copy->process, NULL, 0, NULL, 0, 0, transfer_index(copy->other), true, &seen)) {
	case PROCESS_GONE:
		return false;
	case PROCESS_GOOD:
		return seen.id == copy->other && seen.claimed < seen.done;
	case PROCESS_CHANGING:
		return true;
	default:
		return process_is_there(&copy->process);
	}
}

static void close_line(const struct messenger *messenger, const struct single_copy *copy)
{
	if (copy->method == WIRE_BY_PROCESS)
		atomic_store_explicit(&process_line(messenger, copy)->id, 0, memory_order_relaxed);
	else if (attachment_holds_slot(&messenger->transport->attachments[0]))
		transfer_close(region_line(messenger, copy));
	transfer_fence();
}

bool single_copy_drain(struct messenger *messenger, struct receive *receive, int error, const char *reason)
{
	struct single_copy *copy = receive->copy;

	if (copy == NULL)
		return false;
	if (!copy->finished && !copy->resumed) {
		match_unlink(&copy->link);
		messenger->copying--;
	}
	close_line(messenger, copy);
	if (!may_write(messenger, copy)) {
		receive->copy = NULL;
		single_copy_release(messenger, copy);
		return false;
	}
	bool liar = receive->from->peer.failure == -EPROTO;
	copy->draining = true;
	copy->drained = monotonic_now() + (liar ? LIAR_NANOSECONDS : messenger->transport->timeout);
	copy->error = error;
	copy->reason = reason;
	match_append(&messenger->single->pulling, &copy->link);
	messenger->copying++;
	return true;
}

static void end_drained(struct messenger *messenger, struct single_copy *copy)
{
	struct receive *receive = copy->receive;

	if (monotonic_now() < copy->drained && may_write(messenger, copy))
		return;
	match_unlink(&copy->link);
	messenger->copying--;
	receive->copy = NULL;
	single_copy_release(messenger, copy);
	receive_fail(messenger, receive, copy->error, copy->reason);
}

uint32_t single_copy_work(struct messenger *messenger, uint32_t budget)
{
	struct match_link *head = &messenger->single->pulling;
	uint32_t copied = 0;

	for (struct match_link *link = head->next; link != head && copied < budget;) {
		struct single_copy *copy = (struct single_copy *)(void *)link;
		link = link->next;
		if (copy->draining)
			end_drained(messenger, copy);
		else
			copied += pull(messenger, copy, budget - copied);
	}
	return copied;
}

void single_copy_stop(struct messenger *messenger)
{
	if (messenger->single == NULL)
		return;
	messenger->single->stopped = true;
	for (struct match_link *link = messenger->incoming.next; link != &messenger->incoming;
	     link = link->next) {
		struct receive *receive =
			(struct receive *)(void *)((char *)link - offsetof(struct receive, incoming));
		if (receive->copy == NULL)
			continue;
		if (!receive->copy->finished && !receive->copy->resumed) {
			match_unlink(&receive->copy->link);
			messenger->copying--;
		}
		receive->copy->resumed = true; /* nothing more is done for it */
		close_line(messenger, receive->copy);
	}
}

bool single_copy_is_quiet(struct messenger *messenger)
{
	if (messenger->single == NULL)
		return true;
	for (struct match_link *link = messenger->incoming.next; link != &messenger->incoming;
	     link = link->next) {
		const struct receive *receive =
			(const struct receive *)(void *)((char *)link - offsetof(struct receive, incoming));
		if (receive->copy != NULL && may_write(messenger, receive->copy))
			return false;
	}
	return match_is_empty(&messenger->single->pulling);
}
