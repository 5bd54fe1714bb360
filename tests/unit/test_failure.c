/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers that die, leave or break the protocol in the middle of every protocol. Their operations end, in error
 * unless they were whole; nothing hangs; all memory is freed.
 */
#include "world.h"

#include <stdlib.h>

#define TAG 7U
#define LONGEST 1000000U

static const size_t protocols[] = {0, 1, 40, 48, 49, 300, 440, 441, 2048, 4096, 4097, 20000, 65536, LONGEST};
#define PROTOCOLS (sizeof(protocols) / sizeof(protocols[0]))

static struct world world;
static struct node *self = &world.nodes[0];
static struct node *other = &world.nodes[1];
static unsigned char source[LONGEST];
static unsigned char target[LONGEST];

static int open_world(void **state)
{
	(void)state;
	world_open(&world, 2, 4, WORLD_SECTION_BYTES);
	fill_bytes(source, sizeof(source), 1);
	return 0;
}

static int close_world(void **state)
{
	(void)state;
	world_close(&world);
	return 0;
}

static void run_all_but(struct node *asleep, uint32_t steps)
{
	for (uint32_t i = 0; i < steps; i++)
		for (uint32_t node = 0; node < world.count; node++)
			if (&world.nodes[node] != asleep && world.nodes[node].messenger != NULL)
				(void)messenger_progress(world.nodes[node].messenger);
}

/* No operation of `self` is in progress, and it has all its chunks. */
static void assert_clean(void)
{
	const struct messenger *messenger = self->messenger;
	struct transport *transport = messenger->transport;

	/*
	 * Living peers returned their chunks, but returned chunks are collected only when chunks are needed.
	 */
	for (uint32_t slot = 0; slot < transport->attachments[0].region->members; slot++)
		if (transport->peers[slot] != NULL && transport->peers[slot]->state == PEER_PRESENT)
			assert_true(chunk_collect(&transport->attachments[0].chunks,
						  &transport->peers[slot]->account) >= 0);

	assert_true(match_is_empty(&messenger->pumping));
	assert_true(match_is_empty(&messenger->awaiting));
	assert_true(match_is_empty(&messenger->incoming));
	assert_int_equal(messenger->waiting_controls, 0);
	for (uint32_t i = 0; i < CHUNK_CLASSES; i++)
		assert_int_equal(transport->attachments[0].chunks.classes[i].free_count,
				 transport->attachments[0].chunks.classes[i].count);
}

static void reopen(void)
{
	world_close(&world);
	world_open(&world, 2, 4, WORLD_SECTION_BYTES);
}

enum ending { DIES, LEAVES, ENDINGS };

static void end(enum ending ending)
{
	if (ending == DIES) {
		node_die(other);
		return;
	}
	/* The peer leaves without waiting for us. Its messages stay in its section. */
	other->messenger->transport->attachments[0].member->process = 0;
	shared_store_u64(&region_slot(world.region, node_slot(other))->claim,
			 (uint64_t)other->messenger->transport->attachments[0].member->epoch << 32 |
				 SLOT_FREE);
	node_close(other);
}

/*
 * We send, and the receiver ends after `steps` rounds, with or without a posted receive. The send has one
 * completion: a success if the protocol needed nothing more, otherwise an error.
 */
static void run_send(size_t length, uint32_t steps, bool posted, uint64_t flags, enum ending ending)
{
	if (posted)
		assert_int_equal(node_receive(other, NULL, target, LONGEST, TAG, FI_TAGGED, NULL), 0);
	assert_int_equal(node_send(self, other, source, length, TAG, FI_TAGGED | flags, source), 0);
	for (uint32_t i = 0; i < steps; i++)
		world_step(&world);
	end(ending);
	run_all_but(other, 3);
	world_check_peers(&world);
	assert_false(completion_is_empty(&self->sends));
	struct completion entry = world_await(&world, &self->sends);
	assert_ptr_equal(entry.context, source);
	if (entry.error != 0) {
		assert_int_equal(entry.error, ending == DIES ? ECONNRESET : ECONNABORTED);
		assert_non_null(entry.reason);
	}
	if (length <= WIRE_SHORT_BYTES - 16 && (flags & FI_DELIVERY_COMPLETE) == 0)
		assert_int_equal(entry.error, 0);
	if (!posted && (flags & FI_DELIVERY_COMPLETE) != 0)
		assert_int_not_equal(entry.error, 0);
	assert_true(completion_is_empty(&self->sends));
	assert_clean();
	reopen();
}

static void test_the_receiver_ends(void **state)
{
	static const uint32_t steps[] = {0, 1, 2, 3, 70, 300};

	(void)state;
	for (size_t i = 0; i < PROTOCOLS; i++)
		for (size_t j = 0; j < sizeof(steps) / sizeof(steps[0]); j++)
			for (uint32_t variant = 0; variant < 8; variant++)
				run_send(protocols[i], steps[j], variant & 1,
					 variant & 2 ? FI_DELIVERY_COMPLETE : 0, variant & 4 ? LEAVES : DIES);
}

enum receive_kind { DIRECTED, UNEXPECTED, CLAIMED, SEVERAL, RECEIVE_KINDS };

static void post(enum receive_kind kind)
{
	int result = 0;

	if (kind == DIRECTED)
		result = (int)node_receive(self, other, target, LONGEST, TAG, FI_TAGGED, target);
	if (kind == SEVERAL)
		result = (int)node_receive(self, NULL, target, LONGEST, TAG, FI_TAGGED | FI_MULTI_RECV,
					   target);
	assert_int_equal(result, 0);
}

/* Check whether the message is there, and receive it if so. Returns its completion. */
static bool receive_late(enum receive_kind kind, struct completion *entry)
{
	if (kind == CLAIMED) {
		ssize_t result = node_receive(self, NULL, target, LONGEST, TAG, FI_TAGGED | FI_CLAIM, target);
		if (result == -ENOMSG)
			return false;
		assert_int_equal(result, 0);
	} else {
		assert_int_equal(node_receive(self, NULL, target, LONGEST, TAG, FI_TAGGED, target), 0);
		if (completion_is_empty(&self->receives)) {
			assert_int_equal(messenger_cancel(self->messenger, target), 0);
			assert_int_equal(world_await(&world, &self->receives).error, FI_ECANCELED);
			return false;
		}
	}
	*entry = world_await(&world, &self->receives);
	return true;
}

/* The peer sends, and ends after `steps` rounds. */
static void run_receive(size_t length, uint32_t steps, enum receive_kind kind, enum ending ending)
{
	struct completion entry = {0};
	uint32_t taken = 0;

	memset(target, 0, length);
	(void)world_peer(self, other);
	post(kind);
	assert_int_equal(node_send(other, self, source, length, TAG, FI_TAGGED | FI_DELIVERY_COMPLETE, NULL),
			 0);
	for (uint32_t i = 0; i < steps; i++)
		world_step(&world);
	if (kind == CLAIMED && steps > 0) {
		run_all_but(other, 100);
		assert_int_equal(
			node_receive(self, NULL, NULL, 0, TAG, FI_TAGGED | FI_PEEK | FI_CLAIM, target), 0);
		assert_int_equal(world_await(&world, &self->receives).length, length);
	}
	end(ending);
	world_check_peers(&world);
	bool whole_early = length <= 4096; /* fits in a slot or chunk: came before the end */
	if (kind == UNEXPECTED || kind == CLAIMED) {
		assert_true(completion_is_empty(&self->receives));
		bool found = receive_late(kind, &entry);
		taken = found;
		if (whole_early && (kind == UNEXPECTED || steps > 0))
			assert_true(found && entry.error == 0);
	} else {
		/* A directed receive ends in any case. The receive for several messages stays. */
		while (!completion_is_empty(&self->receives)) {
			entry = world_await(&world, &self->receives);
			taken++;
		}
		assert_int_equal(taken, kind == SEVERAL && taken == 0 ? 0 : 1);
		if (whole_early)
			assert_int_equal(entry.error, 0);
	}
	if (taken > 0 && entry.error == 0) {
		assert_int_equal(entry.length, length);
		assert_bytes(target, length, 1);
	}
	if (kind == SEVERAL && (entry.flags & FI_MULTI_RECV) == 0) {
		assert_int_equal(messenger_cancel(self->messenger, target), 0);
		assert_int_equal(world_await(&world, &self->receives).error, FI_ECANCELED);
	}
	assert_clean();
	reopen();
}

static void test_the_sender_ends(void **state)
{
	static const uint32_t steps[] = {0, 1, 2, 3, 5, 70};

	(void)state;
	for (size_t i = 0; i < PROTOCOLS; i++)
		for (size_t j = 0; j < sizeof(steps) / sizeof(steps[0]); j++)
			for (uint32_t kind = 0; kind < RECEIVE_KINDS; kind++)
				for (uint32_t ending = 0; ending < ENDINGS; ending++)
					run_receive(protocols[i], steps[j], (enum receive_kind)kind,
						    (enum ending)ending);
}

static void test_calls_that_concern_a_dead_peer_fail_at_once(void **state)
{
	(void)state;
	struct msg_peer *peer = world_peer(self, other);
	const struct iovec piece = {target, 8};
	assert_int_equal(node_send(self, other, source, 8, TAG, FI_TAGGED, NULL), 0);
	node_die(other);
	world_check_peers(&world);
	assert_int_equal(messenger_send(self->messenger, &(struct send_request){.pieces = &piece,
										.count = 1,
										.length = 8,
										.to = peer,
										.flags = FI_TAGGED}),
			 -ECONNRESET);
	assert_int_equal(peer->peer.failure, -ECONNRESET);
	assert_string_equal(peer->peer.reason, "it died");
}

static bool may_receive(const struct msg_peer *from, uint64_t tag, uint64_t flags)
{
	const struct receive_request request = {.source = from->peer.source, .tag = tag, .flags = flags};

	return messenger_may_receive(self->messenger, from, &request);
}

/*
 * Messages that came before the end can be received after it. No receive waits for a message that cannot
 * come.
 */
static void test_only_what_came_is_received_from_the_dead(void **state)
{
	int claimer = 0;

	(void)state;
	assert_int_equal(node_send(other, self, "a", 1, 1, FI_TAGGED, NULL), 0);
	assert_int_equal(node_send(other, self, "b", 1, 0, FI_MSG, NULL), 0);
	world_settle(&world);
	struct msg_peer *peer = world_peer(self, other);
	assert_true(may_receive(peer, 2, FI_TAGGED));
	assert_int_equal(node_receive(self, NULL, NULL, 0, 1, FI_TAGGED | FI_PEEK | FI_CLAIM, &claimer), 0);
	(void)world_await_good(&world, &self->receives);
	node_die(other);
	world_check_peers(&world);
	assert_false(may_receive(peer, 2, FI_TAGGED));
	assert_false(may_receive(peer, 1, FI_TAGGED)); /* the message is claimed */
	assert_true(may_receive(peer, 1, FI_TAGGED | FI_CLAIM));
	assert_true(may_receive(peer, 0, FI_MSG));
	assert_int_equal(node_receive(self, NULL, target, 1, 1, FI_TAGGED | FI_CLAIM, &claimer), 0);
	assert_int_equal(world_await_good(&world, &self->receives).length, 1);
	/*
	 * A buffer for several messages takes the messages of the dead peer that are there, and is returned.
	 */
	assert_int_equal(messenger_receive(self->messenger,
					   &(struct receive_request){
						   .pieces = &(struct iovec){target, LONGEST},
						   .count = 1,
						   .source = peer->peer.source,
						   .ignore = UINT64_MAX,
						   .context = target,
						   .flags = FI_MSG | FI_COMPLETION | FI_MULTI_RECV,
					   }),
			 0);
	assert_int_equal(world_await_good(&world, &self->receives).length, 1);
	struct completion entry = world_await(&world, &self->receives);
	assert_int_equal(entry.error, ECONNRESET);
	assert_int_equal(entry.flags & FI_MULTI_RECV, FI_MULTI_RECV);
	assert_false(may_receive(peer, 0, FI_MSG));
}

/* The successor in a dead member's slot is another member, and its predecessor's messages are not its own. */
static void test_a_successor_is_not_taken_for_its_predecessor(void **state)
{
	unsigned char byte = 0;

	(void)state;
	world_close(&world);
	world_open(&world, 2, 2, WORLD_SECTION_BYTES);
	/*
	 * One message waits, one is claimed, one has half arrived, and one receive is directed at the peer.
	 */
	assert_int_equal(node_send(other, self, "a", 1, 1, FI_TAGGED, NULL), 0);
	assert_int_equal(node_send(other, self, "b", 1, 2, FI_TAGGED | FI_DELIVERY_COMPLETE, NULL), 0);
	assert_int_equal(node_send(other, self, source, LONGEST, 3, FI_TAGGED, NULL), 0);
	assert_int_equal(node_send(other, self, source, LONGEST, 4, FI_TAGGED, NULL), 0);
	assert_int_equal(node_receive(self, other, target, 8, 99, FI_TAGGED, NULL), 0);
	run_all_but(other, 200);
	assert_int_equal(node_receive(self, NULL, NULL, 0, 2, FI_TAGGED | FI_PEEK | FI_CLAIM, &byte), 0);
	assert_int_equal(node_receive(self, NULL, NULL, 0, 3, FI_TAGGED | FI_PEEK | FI_CLAIM, target), 0);
	(void)world_await_good(&world, &self->receives);
	(void)world_await_good(&world, &self->receives);
	uint32_t slot = node_slot(other);
	node_die(other);
	node_open(other, world.region);
	assert_int_equal(node_slot(other), slot);
	/* We learn of the successor by its first message. */
	assert_int_equal(node_send(other, self, "c", 1, 1, FI_TAGGED, NULL), 0);
	world_settle(&world);
	struct completion entry = world_await(&world, &self->receives);
	assert_int_equal(entry.tag, 99);
	assert_int_equal(entry.error, ECONNRESET);
	/* The successor asks for its chunks, and does not get those of the lost message. */
	assert_null(world_peer(self, other)->holding);
	struct peer *back = &world_peer(other, self)->peer;
	ring_push(&back->out, control_word(WIRE_RECLAIM, 0, 0), 1);
	transport_wake(back);
	world_settle(&world);
	assert_int_equal(chunk_collect(&other->messenger->transport->attachments[0].chunks, &back->account),
			 0);
	/*
	 * The claimed message that was whole is there, the incomplete message fails, and neither disturbs the
	 * successor.
	 */
	assert_int_equal(node_receive(self, NULL, &byte, 1, 2, FI_TAGGED | FI_CLAIM, &byte), 0);
	assert_int_equal(world_await(&world, &self->receives).error, 0);
	assert_int_equal(byte, 'b');
	assert_int_equal(node_receive(self, NULL, target, LONGEST, 3, FI_TAGGED | FI_CLAIM, target), 0);
	assert_int_equal(world_await(&world, &self->receives).error, ECONNRESET);
	assert_int_equal(node_receive(self, other, &byte, 1, 1, FI_TAGGED, NULL), 0);
	(void)world_await_good(&world, &self->receives);
	assert_int_equal(byte, 'c');
	world_settle(&world);
	assert_int_equal(world_peer(self, other)->peer.state, PEER_PRESENT);
	assert_int_equal(world_peer(other, self)->peer.state, PEER_PRESENT);
	assert_int_equal(node_send(self, other, source, LONGEST, 5, FI_TAGGED, NULL), 0);
	assert_int_equal(node_receive(other, self, target, LONGEST, 5, FI_TAGGED, NULL), 0);
	(void)world_await_good(&world, &other->receives);
	assert_bytes(target, LONGEST, 1);
}

/* There are three members, and one dies in the middle of everything: the other two go on. */
static void test_the_others_go_on(void **state)
{
	struct node *third = &world.nodes[2];
	unsigned char *bytes = malloc(LONGEST);

	(void)state;
	assert_non_null(bytes);
	world_close(&world);
	world_open(&world, 3, 4, WORLD_SECTION_BYTES);
	assert_int_equal(node_receive(third, self, bytes, LONGEST, TAG, FI_TAGGED, NULL), 0);
	assert_int_equal(node_receive(other, self, target, LONGEST, TAG, FI_TAGGED, NULL), 0);
	assert_int_equal(node_send(self, other, source, LONGEST, TAG, FI_TAGGED, target), 0);
	assert_int_equal(node_send(self, third, source, LONGEST, TAG, FI_TAGGED, bytes), 0);
	for (uint32_t i = 0; i < 5; i++)
		world_step(&world);
	node_die(other);
	run_all_but(other, 3);
	world_check_peers(&world);
	(void)world_await_good(&world, &third->receives);
	assert_bytes(bytes, LONGEST, 1);
	for (int i = 0; i < 2; i++) {
		struct completion entry = world_await(&world, &self->sends);
		assert_int_equal(entry.error, entry.context == bytes ? 0 : ECONNRESET);
	}
	assert_clean();
	free(bytes);
}

/* A peer that is never silent must not keep us from noticing that another peer died. */
static void test_a_death_is_noticed_in_spite_of_constant_traffic(void **state)
{
	struct node *third = &world.nodes[2];
	unsigned char byte = 0;

	(void)state;
	world_close(&world);
	world_open(&world, 3, 4, WORLD_SECTION_BYTES);
	assert_int_equal(node_receive(self, other, &byte, 1, TAG, FI_TAGGED, &byte), 0);
	assert_int_equal(node_send(third, self, "x", 1, TAG + 2, FI_TAGGED, NULL), 0);
	world_settle(&world);
	node_die(other);
	/* This takes about 50 ms. A minute is only against hanging. */
	uint64_t until = monotonic_now() + UINT64_C(60000000000);
	uint32_t messages = 0;
	while (completion_is_empty(&self->receives)) {
		assert_true(monotonic_now() < until);
		assert_int_equal(node_send(third, self, "x", 1, TAG + 1, FI_TAGGED, NULL), 0);
		assert_int_equal(messenger_progress(self->messenger), 1);
		/* Receive now and then, so that messages do not pile up. */
		if (++messages % 100 == 0) {
			unsigned char dropped[100];
			for (uint32_t i = 0; i < 100; i++) {
				assert_int_equal(node_receive(self, third, &dropped[i], 1, TAG + 1, FI_TAGGED,
							      NULL),
						 0);
			}
			while (!completion_is_empty(&third->sends))
				third->sends.head++;
			while (!completion_is_empty(&self->receives) &&
			       completion_first(&self->receives)->error == 0) {
				self->receives.head++;
			}
		}
	}
	assert_int_equal(world_await(&world, &self->receives).error, ECONNRESET);
}

/* A peer that breaks the protocol learns so, and does not wait for us for ever. */
static void test_a_violator_is_refused_and_hears_of_it(void **state)
{
	(void)state;
	assert_int_equal(node_send(other, self, "x", 1, TAG, FI_TAGGED, NULL), 0);
	world_settle(&world);
	struct msg_peer *violator = world_peer(self, other);
	struct ring_out *ring = &world_peer(other, self)->peer.out;
	ring_push(ring, control_word(200, 0, 0), 1);
	assert_int_equal(node_send(other, self, source, LONGEST, TAG, FI_TAGGED, NULL), 0);
	world_settle(&world);
	assert_int_equal(violator->peer.state, PEER_FAILED);
	assert_int_equal(violator->peer.failure, -EPROTO);
	world_check_peers(&world);
	struct completion entry = world_await(&world, &other->sends); /* of "x" */
	assert_int_equal(entry.error, 0);
	assert_int_equal(world_await(&world, &other->sends).error, ECONNABORTED);
}

/* The same for a peer that has sent us nothing, and so has no ring that we could close. */
static void test_a_violator_without_a_ring_hears_of_it(void **state)
{
	(void)state;
	assert_int_equal(node_send(self, other, "x", 1, TAG, FI_TAGGED, NULL), 0);
	assert_int_equal(node_receive(other, self, target, 1, TAG, FI_TAGGED, NULL), 0);
	world_settle(&world);
	assert_int_equal(world_await(&world, &other->receives).error, 0);
	assert_int_equal(node_receive(other, self, target, 1, TAG, FI_TAGGED, NULL), 0);
	/* It claims to have read slots that were not written. */
	const struct ring_out *ring = &world_peer(self, other)->peer.out;
	shared_store_u64(&section_credit(world.region, node_slot(other), node_slot(self))->consumed,
			 (uint64_t)ring->connection << 32 | 1000);
	world_check_peers(&world);
	assert_int_equal(world_peer(self, other)->peer.failure, -EPROTO);
	assert_int_equal(world_await(&world, &other->receives).error, ECONNABORTED);
}

/*
 * We were paused for so long that another member took our slot. We send to no peer any more, and disturb
 * nothing.
 */
static void test_one_that_was_replaced_knows_it(void **state)
{
	const struct member *member = self->messenger->transport->attachments[0].member;
	uint64_t successor = (uint64_t)(member->epoch + 1) << 32 | SLOT_JOINED;
	shared_u64 *claim = &region_slot(world.region, member->slot)->claim;
	const struct member *peer = other->messenger->transport->attachments[0].member;

	(void)state;
	assert_int_equal(node_receive(self, other, target, 8, TAG, FI_TAGGED, NULL), 0);
	assert_int_equal(node_send(self, other, source, LONGEST, TAG, FI_TAGGED, NULL), 0);
	world_settle(&world);
	shared_store_u64(claim, successor);
	transport_check_peers(self->messenger->transport);
	(void)messenger_progress(self->messenger);
	assert_int_equal(world_await(&world, &self->sends).error, ECONNABORTED);
	assert_int_equal(world_await(&world, &self->receives).error, ECONNABORTED);
	assert_null(transport_meet(self->messenger->transport, peer->slot, peer->epoch, peer->nonce));
	node_close(self);
	assert_int_equal(shared_load_u64(claim), successor);
}

static void test_closing_with_everything_under_way_frees_it(void **state)
{
	(void)state;
	for (size_t i = 0; i < PROTOCOLS; i++) {
		assert_int_equal(node_send(self, other, source, protocols[i], i, FI_TAGGED, NULL), 0);
		assert_int_equal(node_send(other, self, source, protocols[i], i, FI_TAGGED, NULL), 0);
		assert_int_equal(node_send(self, self, source, protocols[i], i, FI_TAGGED, NULL), 0);
		assert_int_equal(node_receive(self, other, target, 1, 1000 + i, FI_TAGGED, NULL), 0);
		world_step(&world);
	}
	world_settle(&world);
}

/* ---- one failure while another is reported ---- */

struct chain {
	struct transport *transport;
	struct peer *next; /* fails while another failure is reported */
	uint32_t told;
};

static bool tell(void *context, struct peer *peer)
{
	struct chain *chain = context;

	(void)peer;
	chain->told++;
	transport_fail(chain->transport, chain->next, -EPROTO, "the other failed");
	return true;
}

static void test_none_is_forgotten_that_fails_while_another_is_told(void **state)
{
	static const struct transport_user user = {.peer_bytes = sizeof(struct peer), .failed = tell};
	struct chain chain = {0};
	struct region_error error;
	struct peer *peers[2];

	(void)state;
	assert_int_equal(
		transport_open(&chain.transport, world.region, 0, WORLD_TIMEOUT, &user, &chain, &error), 0);
	for (uint32_t i = 0; i < 2; i++) {
		const struct member *member = world.nodes[i].messenger->transport->attachments[0].member;
		peers[i] = transport_meet(chain.transport, member->slot, member->epoch, member->nonce);
		assert_non_null(peers[i]);
	}
	/* The peer with the lower slot, which reporting has already passed. */
	assert_true(peers[0]->slot < peers[1]->slot);
	chain.next = peers[0];
	transport_fail(chain.transport, peers[1], -EPROTO, "first");
	transport_progress_full(chain.transport);
	transport_progress_full(chain.transport);
	assert_int_equal(chain.told, 2);
	assert_int_equal(chain.transport->failures, 0);
	transport_close(chain.transport);
}

#define WITH_WORLD(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_WORLD(test_the_receiver_ends),
		WITH_WORLD(test_the_sender_ends),
		WITH_WORLD(test_calls_that_concern_a_dead_peer_fail_at_once),
		WITH_WORLD(test_only_what_came_is_received_from_the_dead),
		WITH_WORLD(test_a_successor_is_not_taken_for_its_predecessor),
		WITH_WORLD(test_the_others_go_on),
		WITH_WORLD(test_a_death_is_noticed_in_spite_of_constant_traffic),
		WITH_WORLD(test_a_violator_is_refused_and_hears_of_it),
		WITH_WORLD(test_a_violator_without_a_ring_hears_of_it),
		WITH_WORLD(test_one_that_was_replaced_knows_it),
		WITH_WORLD(test_none_is_forgotten_that_fails_while_another_is_told),
		WITH_WORLD(test_closing_with_everything_under_way_frees_it),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
