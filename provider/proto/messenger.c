/* SPDX-License-Identifier: BSD-3-Clause */
/* messenger.c - opening, closing and progress of a messenger, and failed peers. */
#include "proto/messenger.h"

#include "transport/network.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/*
 * A closing endpoint gives its peers this long to read its messages. Afterwards another member may get its
 * slot and section.
 */
#define LINGER_NANOSECONDS UINT64_C(200000000)
/* How often peers are checked meanwhile. All members may be closing at the same time. */
#define CLOSING_CHECK_NANOSECONDS UINT64_C(5000000)
/* Over the network, unread messages are lost after the close, so peers get longer. */
#define LINGER_NETWORK_NANOSECONDS UINT64_C(2000000000)
/* How long the LEAVE messages may take to reach network peers. */
#define LEAVE_NANOSECONDS UINT64_C(100000000)

static void drop_waiting_controls(struct messenger *messenger, struct msg_peer *peer)
{
	messenger->waiting_controls -= peer->waiting_tail - peer->waiting_head;
	free(peer->waiting);
	peer->waiting = NULL;
	peer->waiting_capacity = 0;
	peer->waiting_head = 0;
	peer->waiting_tail = 0;
}

/* The next functions return whether anything failed. */
static bool fail_sends(struct messenger *messenger, struct match_link *head, const struct msg_peer *to)
{
	bool any = false;

	for (struct match_link *link = head->next; link != head;) {
		struct send *send = (struct send *)(void *)link;
		link = link->next;
		if (send->to != to)
			continue;
		send_end(messenger, send, -to->peer.failure, to->peer.reason);
		any = true;
	}
	return any;
}

static bool fail_incoming(struct messenger *messenger, const struct msg_peer *from)
{
	bool any = false;

	for (struct match_link *link = messenger->incoming.next; link != &messenger->incoming;) {
		struct receive *receive =
			(struct receive *)(void *)((char *)link - offsetof(struct receive, incoming));
		link = link->next;
		if (receive->from != from)
			continue;
		any = true;
		match_unlink(&receive->incoming);
		operations_remove(&messenger->receive_ids, receive->id);
		if (fetch_abandon(messenger, receive))
			continue;
		if (!single_copy_drain(messenger, receive, -from->peer.failure, from->peer.reason))
			receive_fail(messenger, receive, -from->peer.failure, from->peer.reason);
	}
	return any;
}

static bool fail_posted(struct messenger *messenger, struct match_queue *queue, const struct msg_peer *from)
{
	struct match_link failing;

	match_list_open(&failing);
	match_withdraw_source(queue, from->peer.source, &failing);
	bool any = !match_is_empty(&failing);
	while (!match_is_empty(&failing)) {
		struct receive *receive = (struct receive *)(void *)match_from_link(failing.next);
		match_unlink(&receive->match.node.same);
		receive_fail(messenger, receive, -from->peer.failure, from->peer.reason);
	}
	return any;
}

/* Drops the peer's unexpected messages. With `keep`, complete messages can still be received. */
static void settle_waiting(struct messenger *messenger, struct match_queue *queue,
			   const struct msg_peer *from, bool keep)
{
	struct match_link *head = &queue->messages[from->peer.source];

	for (struct match_link *link = head->next; link != head;) {
		struct message *message = (struct message *)(void *)match_from_source(link);
		link = link->next;
		if (keep && message_survives(messenger, message))
			continue;
		match_take(queue, &message->match);
		message_free(messenger, message);
	}
}

/* The same for claimed messages. They stay, so that the claiming receive reports the loss. */
static void settle_claimed(struct messenger *messenger, const struct msg_peer *from)
{
	for (struct match_link *link = messenger->claimed.next; link != &messenger->claimed;
	     link = link->next) {
		struct message *message =
			(struct message *)(void *)((char *)link - offsetof(struct message, claimed));
		if (message->from == from && !message_survives(messenger, message)) {
			message->lost = true;
			/*
			 * The chunks are the successor's by now, and it must not get chunks back that it did
			 * not send.
			 */
			message_release(message);
		}
	}
}

static bool peer_failed(void *context, struct peer *peer)
{
	struct messenger *messenger = context;
	struct msg_peer *msg_peer = (struct msg_peer *)(void *)peer;

	msg_peer->early_receive = NULL;
	msg_peer->early_message = NULL;
	pause_forget(msg_peer);
	drop_waiting_controls(messenger, msg_peer);
	bool told = send_queue_fail(messenger, msg_peer);
	told |= remote_fail(messenger, msg_peer);
	told |= fail_sends(messenger, &messenger->pumping, msg_peer);
	told |= fail_sends(messenger, &messenger->awaiting, msg_peer);
	told |= fail_incoming(messenger, msg_peer);
	settle_waiting(messenger, &messenger->tagged, msg_peer, true);
	settle_waiting(messenger, &messenger->untagged, msg_peer, true);
	settle_claimed(messenger, msg_peer);
	told |= fail_posted(messenger, &messenger->tagged, msg_peer);
	told |= fail_posted(messenger, &messenger->untagged, msg_peer);
	return told;
}

static void peer_replaced(void *context, struct peer *peer)
{
	struct messenger *messenger = context;
	struct msg_peer *msg_peer = (struct msg_peer *)(void *)peer;

	/* A receive from the slot's new member must not match messages of the former member. */
	settle_waiting(messenger, &messenger->tagged, msg_peer, false);
	settle_waiting(messenger, &messenger->untagged, msg_peer, false);
}

static int peer_added(void *context, uint32_t source)
{
	struct messenger *messenger = context;

	match_add_sources(&messenger->tagged, source + 1);
	match_add_sources(&messenger->untagged, source + 1);
	return 0;
}

/* Moves the bytes of this peer's messages that are still in chunks to private memory. */
static int peer_settled(void *context, struct peer *peer)
{
	struct messenger *messenger = context;
	struct msg_peer *from = (struct msg_peer *)(void *)peer;
	int result = 0;

	while (from->holding != NULL) {
		struct message *message = from->holding;
		if (message_detach(messenger, message))
			continue;
		/* The message is lost. A receive must not take the rest for the whole. */
		if (from->early_message == message)
			from->early_message = NULL;
		match_take(messenger_queue(messenger, message->wire_flags), &message->match);
		message_free(messenger, message);
		result = -ENOMEM;
	}
	return result;
}

/*
 * Whether this endpoint or the peer copies directly from or to the other's memory. Offers alone do not count.
 */
static bool peer_reaches(void *context, const struct peer *peer)
{
	struct messenger *messenger = context;
	const struct match_link *heads[] = {&messenger->pumping, &messenger->awaiting};

	for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++)
		for (const struct match_link *link = heads[i]->next; link != heads[i]; link = link->next) {
			const struct send *send = (const struct send *)(const void *)link;
			if (&send->to->peer == peer && send->copy != NULL && !send->waits_for_clear)
				return true;
		}
	for (const struct match_link *link = messenger->incoming.next; link != &messenger->incoming;
	     link = link->next) {
		const struct receive *receive =
			(const struct receive *)(const void *)((const char *)link -
							       offsetof(struct receive, incoming));
		if (&receive->from->peer == peer && receive->copy != NULL)
			return true;
	}
	return false;
}

static const struct transport_user transport_user = {
	.peer_bytes = sizeof(struct msg_peer),
	.failed = peer_failed,
	.replaced = peer_replaced,
	.added = peer_added,
	.settle = peer_settled,
	.arrive = arrive,
	.shape = wire_shape,
	.fetched = reading_piece_ended,
	.switch_route = rendezvous_switch,
	.resize = rendezvous_resize,
	.reaches = peer_reaches,
};

void messenger_keep_most(struct messenger *messenger, uint32_t messages)
{
	messenger->kept.messages_max = messages;
	messenger->kept.bytes_max = messages * KEPT_BYTES_FOR_EACH;
}

int messenger_open(struct messenger **opened, struct region *region, uint32_t endpoint, uint64_t timeout,
		   struct region_error *error)
{
	struct messenger *messenger = calloc(1, sizeof(*messenger));

	if (messenger == NULL || match_open(&messenger->tagged, region->members, TRANSPORT_PEERS_MAX) != 0 ||
	    match_open(&messenger->untagged, region->members, TRANSPORT_PEERS_MAX) != 0) {
		if (messenger != NULL)
			match_close(&messenger->tagged);
		free(messenger);
		return region_fail(error, -ENOMEM, "no memory is left for an endpoint: free some");
	}
	thresholds_open(&messenger->thresholds);
	match_list_open(&messenger->pumping);
	match_list_open(&messenger->awaiting);
	match_list_open(&messenger->incoming);
	match_list_open(&messenger->readings);
	messenger_keep_most(messenger, KEPT_MESSAGES_MAX);
	match_list_open(&messenger->kept.pausing);
	match_list_open(&messenger->claimed);
	match_list_open(&messenger->remote_answering);
	match_list_open(&messenger->remote_pumping);
	match_list_open(&messenger->remote_awaiting);
	match_list_open(&messenger->remote_by_core);
	match_list_open(&messenger->remote_grants);
	operations_open(&messenger->send_ids);
	operations_open(&messenger->receive_ids);
	operations_open(&messenger->remote_ids);
	operations_open(&messenger->grant_ids);
	send_queues_open(&messenger->send_queues);
	pool_open(&messenger->send_pool, sizeof(struct send));
	pool_open(&messenger->receive_pool, sizeof(struct receive));
	pool_open(&messenger->message_pool, sizeof(struct message));
	pool_open(&messenger->remote_pool, sizeof(struct remote_operation));
	messenger->multi_receive_minimum = 64;
	messenger->reaches = messenger->exposes = region->heap_bytes != 0;
	int result = transport_open(&messenger->transport, region, endpoint, timeout, &transport_user,
				    messenger, error);
	if (result != 0) {
		match_close(&messenger->tagged);
		match_close(&messenger->untagged);
		free(messenger);
		return result;
	}
	*opened = messenger;
	return 0;
}

int messenger_join(struct messenger *messenger, struct region *region, uint32_t endpoint,
		   struct region_error *error)
{
	uint32_t members = messenger->transport->members + region->members;

	if (members > ATTACHMENTS_MAX * REGION_MEMBERS_MAX)
		return region_fail(error, -E2BIG,
				   "an endpoint can be in at most %u regions: name fewer in VICINAL_REGION",
				   ATTACHMENTS_MAX);
	/* Before any member of the region can send to this endpoint. */
	(void)peer_added(messenger, members - 1);
	return transport_join(messenger->transport, region, endpoint, error);
}

static void free_messages(struct match_queue *queue)
{
	for (struct match_link *link = queue->arrivals.next; link != &queue->arrivals; link = link->next)
		free(((struct message *)(void *)match_from_arrival(link))->copy);
}

/* Whether peers have read everything or are gone. */
static bool is_done(struct messenger *messenger)
{
	return match_is_empty(&messenger->pumping) && messenger->waiting_controls == 0 &&
	       (messenger->remote_pending | messenger->send_queues.count) == 0 &&
	       single_copy_is_quiet(messenger) && transport_drained(messenger->transport);
}

static void begin_to_close(struct messenger *messenger)
{
	struct closing *closing = &messenger->closing;

	direct_conceal(messenger, NULL);
	single_copy_stop(messenger);
	closing->begun = true;
	closing->until =
		monotonic_now() +
		(network_has_peers(messenger->transport) ? LINGER_NETWORK_NANOSECONDS : LINGER_NANOSECONDS);
}

bool messenger_may_close(struct messenger *messenger)
{
	struct closing *closing = &messenger->closing;

	/* A forked child has its parent's member, and must send nothing. */
	if (messenger->transport->attachments[0].member->process != getpid())
		return true;
	if (!closing->begun)
		begin_to_close(messenger);
	(void)messenger_progress(messenger);
	uint64_t now = monotonic_now();
	if (now >= closing->next_check) {
		transport_check_peers(messenger->transport);
		closing->next_check = now + CLOSING_CHECK_NANOSECONDS;
	}
	if (!closing->leaves && (is_done(messenger) || now > closing->until)) {
		/* Unfinished operations end here. Network peers are told, instead of having to find out. */
		closing->leaves = true;
		closing->until = now + LEAVE_NANOSECONDS;
	}
	return closing->leaves && (network_drained(messenger->transport) || now > closing->until);
}

/* The core provider cannot be closed while it has registrations. */
static void revoke_grants(const struct match_link *head)
{
	for (struct match_link *link = head->next; link != head; link = link->next)
		network_revoke(&((struct send *)(void *)link)->grant);
}

void messenger_close(struct messenger *messenger)
{
	while (!messenger_may_close(messenger))
		(void)nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
	direct_conceal(messenger, NULL);
	free_messages(&messenger->tagged);
	free_messages(&messenger->untagged);
	for (struct match_link *link = messenger->claimed.next; link != &messenger->claimed;
	     link = link->next)
		free(((struct message *)(void *)((char *)link - offsetof(struct message, claimed)))->copy);
	for (uint32_t source = 0; source < messenger->transport->peer_end; source++) {
		struct msg_peer *peer = (struct msg_peer *)(void *)messenger->transport->peers[source];
		if (peer != NULL) {
			drop_waiting_controls(messenger, peer);
			send_queue_drop(messenger, peer);
			remote_forget(messenger, peer);
		}
	}
	single_copy_close(messenger);
	revoke_grants(&messenger->awaiting);
	remote_revoke_grants(messenger);
	match_close(&messenger->tagged);
	match_close(&messenger->untagged);
	operations_close(&messenger->send_ids);
	operations_close(&messenger->receive_ids);
	operations_close(&messenger->remote_ids);
	pool_close(&messenger->send_pool);
	pool_close(&messenger->receive_pool);
	pool_close(&messenger->message_pool);
	pool_close(&messenger->remote_pool);
	transport_close(messenger->transport);
	/* Until transport_close(), the core provider may have written to registered memory. */
	remote_free_grants(messenger);
	free(messenger);
}

bool messenger_owes(const struct messenger *messenger)
{
	/* A forked child has its parent's member, and sends nothing. */
	return messenger->transport->attachments[0].member->process == getpid() &&
	       send_queues_owed(messenger);
}

uint32_t messenger_progress(struct messenger *messenger)
{
	uint32_t handled = transport_poll(messenger->transport, arrive);

	if (__builtin_expect((messenger->waiting_controls | messenger->copying | messenger->readings_wait) !=
					     0 ||
				     !match_is_empty(&messenger->pumping),
			     0))
		handled += rendezvous_work(messenger);
	if (__builtin_expect((messenger->remote_pending | messenger->send_queues.count) != 0, 0)) {
		handled += remote_work(messenger);
		if (messenger->send_queues.count != 0)
			handled += send_queues_work(messenger);
	}
	return handled;
}
