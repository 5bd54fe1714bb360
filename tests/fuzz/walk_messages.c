/* SPDX-License-Identifier: BSD-3-Clause */
/* walk_messages.c - see walk.h. Each message names its send operation, in its first bytes or in its data. */
#include "fuzz/walk.h"

#include <stdio.h>
#include <stdlib.h>

#include "region/heap.h"

#define TAGS 3U

static const uint32_t lengths[] = {0, 8, 48, 49, 440, 3000, 4096, 20000, 70000, LONG, 9, 1};

void set_buffer(const struct walk *walk, struct operation *operation, bool in_heap)
{
	struct heap *heap = transport_of(operation->at)->heap;
	size_t length = operation->length > 0 ? operation->length : 1;

	/* The heap of a dead endpoint is gone, and another endpoint's fake core may still read from it. */
	if (in_heap && heap != NULL && !(walk->allowed & FAULT_DEATH))
		operation->buffer = heap_allocate(heap, length, 1, false);
	operation->in_heap = operation->buffer != NULL;
	if (operation->buffer == NULL)
		operation->buffer = malloc(length);
	require(operation->buffer != NULL, "no memory");
}

void release_operation(struct operation *operation)
{
	if (operation->in_heap)
		(void)heap_release(operation->buffer);
	else
		free(operation->buffer);
	operation->buffer = NULL;
}

struct operation *new_operation(struct walk *walk, uint8_t at, uint8_t other, bool send)
{
	if (walk->count == WALK_OPERATIONS || !is_alive(at))
		return NULL;
	struct operation *operation = &walk->operations[walk->count];
	*operation = (struct operation){
		.state = OPERATION_ACTIVE,
		.send = send,
		.at = at,
		.other = other,
		.at_life = walk->lives[at],
		.other_life = other != NOBODY ? walk->lives[other] : 0,
		.message = WALK_OPERATIONS,
	};
	return operation;
}

/* If the provider did not take the operation, release it. */
static void settle_operation(struct walk *walk, struct operation *operation, ssize_t result)
{
	if (result == 0)
		walk->count++;
	else
		release_operation(operation);
}

/* As in an address vector: through a shared region that the address names, otherwise over the network. */
struct peer *find_peer(struct walk *walk, uint8_t at, uint8_t whom)
{
	const struct address *address = &walk->addresses[whom];
	struct transport *transport = transport_of(at);
	uint32_t epoch = 0;
	uint32_t source = domain_resolve(&domains[at], address, &epoch);

	if (source == RESOLVE_NONE) {
		uint32_t index =
			directory_add(&world.nodes[at].directory, address->nonce, &walk->names[whom]);
		return index == DIRECTORY_NONE ? NULL : network_meet(transport, transport->members + index);
	}
	struct peer *peer = transport_meet(transport, source, epoch, address->nonce);
	if (peer == NULL)
		peer = transport->peers[source]; /* can no longer be met, but was */
	return peer != NULL && peer->nonce == address->nonce ? peer : NULL;
}

/* The bytes of message `id`. The bytes of all messages are prepared, because computing each takes longest. */
static const unsigned char *bytes_of(uint64_t id)
{
	enum { SHIFTS = 251 };
	static unsigned char bytes[LONG + SHIFTS];

	if (bytes[1] == 0)
		fill_bytes(bytes, sizeof(bytes), 0);
	return bytes + id % SHIFTS;
}

static void fill_message(const struct walk *walk, struct operation *operation)
{
	uint64_t id = (uint64_t)(operation - walk->operations);

	memcpy(operation->buffer, bytes_of(id), operation->length);
	if (operation->length >= sizeof(id))
		memcpy(operation->buffer, &id, sizeof(id));
}

void send_operation(struct walk *walk, struct operation *operation, struct peer *to, bool in_pieces,
		    uint64_t flags)
{
	const size_t first = operation->length / 3;
	const struct iovec pieces[2] = {{operation->buffer, first},
					{operation->buffer + first, operation->length - first}};
	const struct iovec piece = {operation->buffer, operation->length};

	fill_message(walk, operation);
	ssize_t result = messenger_send(world.nodes[operation->at].node.messenger,
					&(struct send_request){
						.pieces = in_pieces ? pieces : &piece,
						.count = in_pieces ? 2 : 1,
						.length = operation->length,
						.to = (struct msg_peer *)(void *)to,
						.tag = operation->tag,
						.data = (uint64_t)(operation - walk->operations),
						.context = operation,
						.flags = (operation->tagged ? FI_TAGGED : FI_MSG) |
							 FI_COMPLETION | flags,
					});
	settle_operation(walk, operation, result);
}

void walk_send(struct walk *walk)
{
	uint8_t ends = take_u8(&walk->input);
	uint8_t style = take_u8(&walk->input);
	uint8_t size = take_u8(&walk->input);
	struct operation *operation = new_operation(walk, ends % FAKE_ENDS, ends / 16 % FAKE_ENDS, true);

	if (operation == NULL)
		return;
	struct peer *to = find_peer(walk, operation->at, operation->other);
	if (to == NULL)
		return;
	operation->tagged = style & 1;
	operation->tag = operation->tagged ? style / 16 % TAGS : 0;
	operation->length = lengths[size % 12];
	set_buffer(walk, operation, style & 2);
	bool says = operation->length < sizeof(uint64_t) || (style & 4);
	send_operation(walk, operation, to, style & 128,
		       (says ? FI_REMOTE_CQ_DATA : 0U) | (style & 8 ? FI_DELIVERY_COMPLETE : 0U));
}

ssize_t post_operation(struct walk *walk, struct operation *operation, const struct peer *from,
		       uint64_t ignore, uint64_t flags)
{
	const struct iovec piece = {operation->buffer, operation->length};
	ssize_t result = messenger_receive(world.nodes[operation->at].node.messenger,
					   &(struct receive_request){
						   .pieces = &piece,
						   .count = operation->buffer != NULL,
						   .source = from != NULL ? from->source : MATCH_ANY_SOURCE,
						   .tag = operation->tag,
						   .ignore = operation->tagged ? ignore : UINT64_MAX,
						   .context = operation,
						   .flags = (operation->tagged ? FI_TAGGED : FI_MSG) |
							    FI_COMPLETION | flags,
					   });

	if (operation->look != LOOK_CLAIMED)
		settle_operation(walk, operation, result);
	return result;
}

void walk_receive(struct walk *walk)
{
	uint8_t ends = take_u8(&walk->input);
	uint8_t style = take_u8(&walk->input);
	uint8_t size = take_u8(&walk->input);
	uint8_t other = ends / 16 % (FAKE_ENDS + 1);
	struct operation *operation =
		new_operation(walk, ends % FAKE_ENDS, other < FAKE_ENDS ? other : NOBODY, false);

	if (operation == NULL)
		return;
	struct peer *from =
		operation->other != NOBODY ? find_peer(walk, operation->at, operation->other) : NULL;
	if (from == NULL)
		operation->other = NOBODY;
	operation->tagged = style & 1;
	operation->tag = operation->tagged ? style / 16 % TAGS : 0;
	/* At least room for the message's number. */
	operation->length = lengths[1 + size % 9];
	set_buffer(walk, operation, style & 2);
	(void)post_operation(walk, operation, from, style & 4 ? UINT64_MAX : 0, 0);
}

void receive_message(struct walk *walk, const struct operation *sent)
{
	struct operation *operation = new_operation(walk, sent->other, NOBODY, false);

	require(operation != NULL, "no operation is left for a message to receive");
	operation->tagged = sent->tagged;
	operation->tag = sent->tag;
	operation->length = sent->length > 8 ? sent->length : 8;
	set_buffer(walk, operation, false);
	(void)post_operation(walk, operation, NULL, 0, 0);
}

void walk_cancel(struct walk *walk)
{
	struct operation *operation = &walk->operations[take_u8(&walk->input)];

	if (operation->state != OPERATION_ACTIVE || operation->send)
		return;
	if (messenger_cancel(world.nodes[operation->at].node.messenger, operation) == 0)
		operation->cancelled = true;
}

void forget_operations(struct walk *walk, uint8_t at)
{
	for (uint32_t i = 0; i < walk->count; i++) {
		struct operation *operation = &walk->operations[i];
		if (operation->state != OPERATION_ACTIVE || operation->at != at)
			continue;
		/* The buffer stays until the end, because another endpoint's fake core may still read it. */
		operation->state = OPERATION_DONE;
	}
}

/* ---- completions ---- */

/* The endpoint of the walk that a completion names as its source. */
static uint8_t sender_of(const struct walk *walk, uint8_t at, const struct completion *entry)
{
	const struct transport *transport = transport_of(at);
	uint32_t source = (uint32_t)entry->source;

	require(source < transport->peer_end && transport->peers[source] != NULL, "a message is from nobody");
	for (uint8_t i = 0; i < FAKE_ENDS; i++)
		if (transport->peers[source]->nonce == walk->addresses[i].nonce)
			return i;
	return NOBODY;
}

/*
 * If either of two receives could take either of two messages of one sender, the receive that was posted
 * first takes the first.
 */
static void check_order(const struct walk *walk, const struct operation *receive)
{
	const struct operation *sent = &walk->operations[receive->message];

	for (uint32_t i = 0; i < walk->count; i++) {
		const struct operation *other = &walk->operations[i];
		if (other == receive || other->send || other->message == WALK_OPERATIONS)
			continue;
		const struct operation *before = &walk->operations[other->message];
		if (before->at != sent->at || before->at_life != sent->at_life || other->at != receive->at ||
		    other->at_life != receive->at_life || before->tagged != sent->tagged ||
		    before->tag != sent->tag)
			continue;
		require((before < sent) == (other < receive), "a message overtakes another");
	}
}

/* The send whose message completed, from any life of both ends; NULL if nothing may be expected. */
static struct operation *sent_of(struct walk *walk, const struct operation *receive,
				 const struct completion *entry)
{
	uint8_t sender = sender_of(walk, receive->at, entry);
	uint64_t id = entry->data;

	if (sender == NOBODY || trust_of(walk, receive, sender) == TRUST_HOSTILE)
		return NULL;
	if (!(entry->flags & FI_REMOTE_CQ_DATA)) {
		require(receive->buffer != NULL, "a message of a burst does not name its send");
		memcpy(&id, receive->buffer, sizeof(id));
	}
	require(id < walk->count && walk->operations[id].send, "a message arrives that nobody sent");
	struct operation *sent = &walk->operations[id];
	if (sent->at_life != walk->lives[sent->at] || sent->other_life != walk->lives[sent->other])
		return NULL;
	require(sent->at == sender && sent->other == receive->at, "a message arrives elsewhere");
	require(receive->other == NOBODY || receive->other == sender, "a receive takes another's message");
	require(!sent->delivered, "a message arrives twice");
	require(sent->tagged == receive->tagged && entry->tag == sent->tag, "a message has another tag");
	return sent;
}

static void take_message(struct walk *walk, struct operation *receive, struct operation *sent)
{
	sent->delivered = true;
	receive->message = (uint32_t)(sent - walk->operations);
	check_order(walk, receive);
}

static void check_message(struct walk *walk, struct operation *receive, const struct completion *entry)
{
	struct operation *sent = sent_of(walk, receive, entry);

	if (sent == NULL)
		return;
	require((sent->length > receive->length) == (entry->error == FI_ETRUNC),
		"a message has another length");
	uint64_t id = (uint64_t)(sent - walk->operations);
	size_t length = sent->length < receive->length ? sent->length : receive->length;
	require(entry->length == length, "a completion has another length");
	size_t head = sent->length >= sizeof(id) ? sizeof(id) : 0;
	require(head == 0 || memcmp(receive->buffer, &id, head) == 0, "a message's number is changed");
	require(length <= head || memcmp(receive->buffer + head, bytes_of(id) + head, length - head) == 0,
		"a message's bytes are changed");
	take_message(walk, receive, sent);
}

/* Check a completed peek: it found its message, or none. */
static void take_look(struct walk *walk, struct operation *receive, const struct completion *entry)
{
	enum look look = receive->look;

	receive->state = OPERATION_DONE;
	require(entry->error == 0 || entry->error == FI_ENOMSG, "a peek fails");
	if (entry->error != 0)
		return;
	struct operation *sent = sent_of(walk, receive, entry);
	require(sent == NULL || entry->length == sent->length, "a message that waits has another length");
	if (look == LOOK_DISCARDS && sent != NULL)
		take_message(walk, receive, sent);
	if (look != LOOK_CLAIMS)
		return;
	receive->state = OPERATION_ACTIVE;
	receive->look = LOOK_CLAIMED;
	receive->length = entry->length < LONG ? entry->length : LONG;
}

/* May an operation at `at` fail that names `other`, or no peer? */
static bool may_fail(const struct walk *walk, const struct operation *operation)
{
	if (walk->ending || operation->cancelled)
		return true;
	if (operation->other != NOBODY)
		return trust_of(walk, operation, operation->other) != TRUST_CLEAN;
	return walk->concerned[operation->at];
}

/* A forged frame may repeat the sender's offer of memory to a third endpoint. */
static bool has_forged_frames(const struct walk *walk, uint8_t at)
{
	for (uint8_t i = 0; i < FAKE_ENDS; i++)
		if (walk->trust[at][i] == TRUST_HOSTILE)
			return true;
	return false;
}

static void take_completion(struct walk *walk, uint8_t at, const struct completion *entry, bool sends)
{
	struct operation *operation = entry->context;

	require(operation >= walk->operations && operation < walk->operations + walk->count,
		"a completion names no operation");
	require(operation->state == OPERATION_ACTIVE, "an operation completes twice");
	require(operation->send == sends && operation->at == at, "an operation completes elsewhere");
	if (operation->look != LOOK_NONE && operation->buffer == NULL) {
		take_look(walk, operation, entry);
		return;
	}
	operation->state = OPERATION_DONE;
	if (entry->error != 0 && entry->error != FI_ETRUNC && !may_fail(walk, operation)) {
		(void)fprintf(stderr, "fuzz_walk: error %d: %s\n", entry->error, entry->reason);
		require(false, "an operation fails without a reason");
	}
	if (!sends && (entry->error == 0 || entry->error == FI_ETRUNC))
		check_message(walk, operation, entry);
	/*
	 * The fake core reads memory that is no longer exposed, where a real core fails. In this case the
	 * memory stays until the end.
	 */
	if (!sends ||
	    (trust_of(walk, operation, operation->other) == TRUST_CLEAN && !has_forged_frames(walk, at)))
		release_operation(operation);
}

void take_completions(struct walk *walk, uint8_t at)
{
	struct node *node = &world.nodes[at].node;

	for (; !completion_is_empty(&node->sends); node->sends.head++)
		take_completion(walk, at, completion_first(&node->sends), true);
	for (; !completion_is_empty(&node->receives); node->receives.head++)
		take_completion(walk, at, completion_first(&node->receives), false);
}
