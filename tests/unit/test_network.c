/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers beyond the region: messages over the network, and frames from any process that reaches our port. */
#include "fake_core.h"

#include <stdlib.h>
#include <unistd.h>

#define BYTES ((size_t)3 << 20)

static unsigned char in[BYTES];
static unsigned char out[BYTES];
static struct fake_world world;

static struct far_node *a = &world.nodes[0];
static struct far_node *b = &world.nodes[1];

static struct network_peer *known(struct far_node *at, const struct far_node *whom)
{
	return fake_peer(at, whom)->peer.network;
}

/* Every protocol, expected and unexpected, truncated and whole. */
static void test_messages_of_all_sizes(void **state)
{
	static const size_t sizes[] = {0, 8, 48, 49, 300, 440, 441, 4096, 16384, 16385, 100000, BYTES};

	(void)state;
	fake_open(&world);
	struct msg_peer *to_b = fake_peer(a, b);
	uint32_t from_a = fake_peer(b, a)->peer.source;
	for (uint64_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (int expected = 0; expected < 2; expected++)
			for (size_t cut = 0; cut < 2 && cut <= sizes[i]; cut++) {
				memset(in, 0, sizes[i]);
				fill_bytes(out, sizes[i], i);
				if (expected)
					assert_int_equal(fake_receive(b, from_a, in, sizes[i] - cut, i), 0);
				assert_int_equal(fake_send(a, to_b, out, sizes[i], i), 0);
				fake_settle(&world);
				if (!expected)
					assert_int_equal(fake_receive(b, from_a, in, sizes[i] - cut, i), 0);
				fake_settle(&world);
				assert_int_equal(fake_next(&a->node.sends).error, 0);
				struct completion got = fake_next(&b->node.receives);
				assert_int_equal(got.error, cut ? FI_ETRUNC : 0);
				assert_int_equal(got.length, sizes[i] - cut);
				assert_int_equal(got.overflow, cut);
				assert_bytes(in, sizes[i] - cut, i);
				assert_int_equal(a->end->registered, 0);
			}
	fake_close(&world);
}

/* The core has no room for a while: all messages arrive in order, in fewer frames. */
static void test_slots_wait_for_the_core(void **state)
{
	enum { MANY = 40 };

	(void)state;
	fake_open(&world);
	struct msg_peer *to_b = fake_peer(a, b);
	(void)fake_peer(b, a);
	a->end->refusals = 3;
	for (uint64_t i = 0; i < MANY; i++)
		assert_int_equal(fake_send(a, to_b, &i, sizeof(i), 5), 0);
	assert_int_equal(a->end->frames, 0);
	for (uint64_t i = 0; i < MANY; i++)
		assert_int_equal(fake_receive(b, MATCH_ANY_SOURCE, in + 8 * i, 8, 5), 0);
	fake_settle(&world);
	for (uint64_t i = 0; i < MANY; i++) {
		uint64_t value = 0;
		assert_int_equal(fake_next(&b->node.receives).length, 8);
		memcpy(&value, in + 8 * i, 8);
		assert_int_equal(value, i);
	}
	assert_in_range(a->end->frames, 2, 4); /* a HELLO, and 40 slots, 25 in a frame */
	fake_close(&world);
}

/* A send to a full ring is refused, and nothing is lost. */
static void test_a_full_ring_is_told(void **state)
{
	uint64_t sent = 0;

	(void)state;
	fake_open(&world);
	struct msg_peer *to_b = fake_peer(a, b);
	a->end->refusals = UINT32_MAX;
	while (fake_send(a, to_b, &sent, sizeof(sent), 5) == 0)
		sent++;
	assert_int_equal(sent, NETWORK_RING_SLOTS);
	a->end->refusals = 0;
	fake_settle(&world);
	for (uint64_t i = 0; i < sent; i++)
		assert_int_equal(fake_receive(b, MATCH_ANY_SOURCE, in + 8 * i, 8, 5), 0);
	for (uint64_t i = 0; i < sent; i++) {
		assert_int_equal(fake_next(&b->node.receives).error, 0);
		assert_memory_equal(in + 8 * i, &i, 8);
	}
	fake_close(&world);
}

/* A chunk is free again once the core has sent it: more messages are sent than there are chunks. */
static void test_chunks_come_back_from_the_core(void **state)
{
	static const uint32_t chunks[] = NETWORK_CHUNKS;
	uint32_t all = 0;

	(void)state;
	fake_open(&world);
	struct msg_peer *to_b = fake_peer(a, b);
	uint32_t from_a = fake_peer(b, a)->peer.source;
	for (size_t i = 0; i < sizeof(chunks) / sizeof(chunks[0]); i++)
		all += chunks[i];
	for (uint64_t i = 0; i <= all; i++)
		fake_talk(&world, a, to_b, b, from_a, 4096, i);
	fake_close(&world);
}

/* A peer that our application has not inserted: a receive from any source gets its message. */
static void test_a_stranger_says_who_it_is(void **state)
{
	(void)state;
	fake_open(&world);
	assert_int_equal(fake_receive(b, MATCH_ANY_SOURCE, in, 8, 1), 0);
	assert_int_equal(fake_send(a, fake_peer(a, b), "12345678", 8, 1), 0);
	fake_settle(&world);
	struct completion got = fake_next(&b->node.receives);
	assert_int_equal(got.length, 8);
	assert_int_equal((uint32_t)got.source, b->region->members);
	/* It can be answered. */
	assert_int_equal(fake_receive(a, MATCH_ANY_SOURCE, in, 8, 2), 0);
	assert_int_equal(fake_send(b, fake_peer(b, a), "87654321", 8, 2), 0);
	fake_settle(&world);
	assert_int_equal(fake_next(&a->node.receives).length, 8);
	fake_close(&world);
}

/* The core reports an error of a peer, at a send and at a read, and the peer ends. */
static void test_what_the_core_says_ends_a_peer(void **state)
{
	(void)state;
	fake_open(&world);
	struct msg_peer *to_b = fake_peer(a, b);
	assert_int_equal(fake_receive(a, to_b->peer.source, in, 8, 1), 0);
	assert_int_equal(fake_receive(a, MATCH_ANY_SOURCE, in, 8, 2), 0);
	assert_int_equal(fake_send(a, to_b, out, 100000, 1), 0);
	a->end->send_error = ECONNREFUSED;
	assert_int_equal(fake_send(a, to_b, out, 4096, 1), 0);
	fake_settle(&world);
	assert_int_equal(fake_next(&a->node.receives).error, FI_ECONNRESET);
	assert_true(completion_is_empty(&a->node.receives)); /* from any source: its message may still come */
	assert_int_equal(fake_next(&a->node.sends).error, 0);
	assert_int_equal(fake_next(&a->node.sends).error, FI_ECONNRESET);
	assert_int_equal(fake_send(a, to_b, out, 8, 1), -FI_ECONNRESET);
	fake_close(&world);

	fake_open(&world);
	to_b = fake_peer(a, b);
	uint32_t from_a = fake_peer(b, a)->peer.source;
	b->end->read_error = EIO;
	assert_int_equal(fake_receive(b, from_a, in, 100000, 1), 0);
	assert_int_equal(fake_send(a, to_b, out, 100000, 1), 0);
	fake_settle(&world);
	assert_int_equal(fake_next(&b->node.receives).error, FI_ECONNRESET);
	fake_close(&world);
}

/* A LEAVE arrives after all messages that were sent before it, and none of them is lost. */
static void test_who_leaves_is_told(void **state)
{
	(void)state;
	fake_open(&world);
	struct msg_peer *to_b = fake_peer(a, b);
	uint32_t from_a = fake_peer(b, a)->peer.source;
	assert_int_equal(fake_send(a, to_b, "12345678", 8, 1), 0);
	assert_false(network_drained(a->node.messenger->transport));
	fake_settle(&world);
	assert_true(network_drained(a->node.messenger->transport));
	assert_int_equal(fake_receive(b, from_a, in, 8, 1), 0);
	assert_int_equal(fake_next(&b->node.receives).error, 0);
	assert_int_equal(known(b, a)->peer->failure, -ECONNABORTED);
	fake_close(&world);
}

/* A frame of a's, kept back. */
static size_t frame_of(unsigned char *frame, size_t length)
{
	assert_int_equal(fake_send(a, fake_peer(a, b), out, length, 1), 0);
	memcpy(frame, a->end->last, a->end->last_length);
	return a->end->last_length;
}

static uint64_t strays(const struct far_node *at)
{
	return at->node.messenger->transport->network->strays;
}

/* A frame that is not for us, or is from a peer that we do not know, is dropped without other effects. */
static void test_strays_are_dropped(void **state)
{
	unsigned char frame[FRAME_MAX];
	struct frame_header header;
	uint64_t expected = 0;

	(void)state;
	fake_open(&world);
	(void)fake_peer(b, a);
	size_t length = frame_of(frame, 8);
	fake_settle(&world);
	for (uint32_t change = 0; change < 5; change++) {
		unsigned char changed[FRAME_MAX];
		size_t cut = change == 3 ? sizeof(header) - 1 : length;
		memcpy(&header, frame, sizeof(header));
		header.magic ^= change == 0;
		header.to ^= change == 1;
		header.from ^= change == 2;
		if (change == 4) {
			header.kind = FRAME_HELLO; /* a HELLO of the wrong length */
		}
		memcpy(changed, frame, length);
		memcpy(changed, &header, sizeof(header));
		assert_true(fake_deliver(b->end, changed, cut));
		fake_settle(&world);
		assert_int_equal(strays(b), ++expected);
	}
	assert_true(fake_deliver(b->end, frame, 0));
	assert_true(fake_deliver(b->end, world.ends, sizeof(frame) + 1)); /* longer than any frame */
	fake_settle(&world);
	assert_int_equal(known(b, a)->peer->state, PEER_PRESENT);
	assert_int_equal(b->end->posted_count, NETWORK_BUFFERS);
	fake_close(&world);
}

static char said[4][256];
static uint32_t said_count;

static void hear(const char *text)
{
	assert_true(said_count < 4 && strlen(text) < sizeof(said[0]));
	memcpy(said[said_count++], text, strlen(text) + 1);
}

/*
 * A peer that knows our nonce and uses another protocol version belongs to our job. The versions are reported
 * once, and the peer fails at both ends, so that no operation waits for it.
 */
static void test_another_version_is_said_once(void **state)
{
	unsigned char frame[FRAME_MAX];
	struct frame_header header;

	(void)state;
	fake_open(&world);
	said_count = 0;
	network_set_notice(b->node.messenger->transport, hear);
	(void)fake_peer(b, a);
	size_t length = frame_of(frame, 8);
	fake_settle(&world);
	memcpy(&header, frame, sizeof(header));
	header.version = FRAME_VERSION + 6;
	header.from ^= 1; /* a peer that we do not know: reported all the same */
	memcpy(frame, &header, sizeof(header));
	assert_true(fake_deliver(b->end, frame, length));
	fake_settle(&world);
	assert_int_equal(said_count, 1);
	assert_non_null(strstr(said[0], "version 8 of"));
	assert_non_null(strstr(said[0], "this process version 2: install the same"));
	assert_int_equal(known(b, a)->peer->state, PEER_PRESENT);
	header.from ^= 1;
	memcpy(frame, &header, sizeof(header));
	assert_true(fake_deliver(b->end, frame, length));
	fake_settle(&world);
	assert_int_equal(said_count, 1);
	assert_int_equal(known(b, a)->peer->state, PEER_FAILED);
	assert_int_equal(known(b, a)->peer->failure, -EPROTO);
	assert_int_equal(known(a, b)->peer->state, PEER_FAILED); /* it was refused */
	fake_close(&world);
}

/* A HELLO in another peer's name, from another place, or with an invalid name. */
static void test_hellos_that_cannot_be(void **state)
{
	struct {
		struct frame_header header;
		struct frame_hello hello;
	} frame = {0};

	(void)state;
	fake_open(&world);
	(void)fake_peer(b, a);
	frame.header = (struct frame_header){
		.magic = FRAME_MAGIC,
		.version = FRAME_VERSION,
		.kind = FRAME_HELLO,
		.to = b->node.messenger->transport->attachments[0].member->nonce,
		.from = a->node.messenger->transport->attachments[0].member->nonce,
	};
	frame.hello = (struct frame_hello){.provider = 7, .length = 1, .name = {2}};
	assert_true(fake_deliver(b->end, &frame, sizeof(frame)));
	frame.header.from++;
	frame.hello.length = CORE_NAME_MAX + 1;
	assert_true(fake_deliver(b->end, &frame, sizeof(frame)));
	frame.hello.length = 2; /* the core's names have one byte */
	assert_true(fake_deliver(b->end, &frame, sizeof(frame)));
	frame.hello.length = 1;
	frame.hello.provider = 8;
	assert_true(fake_deliver(b->end, &frame, sizeof(frame)));
	frame.hello.provider = 7;
	b->end->info.addr_format = FI_SOCKADDR_IN; /* then the first bytes give the name's length */
	assert_true(fake_deliver(b->end, &frame, sizeof(frame)));
	fake_settle(&world);
	assert_int_equal(strays(b), 5);
	assert_int_equal(b->directory.count, 1);
	/* An address that the application inserts stays invalid, too. */
	frame.header.from++;
	struct core_name name = {.provider = 7, .length = 1, .bytes = {2}};
	uint32_t index = directory_add(&b->directory, frame.header.from, &name);
	assert_null(network_meet(b->node.messenger->transport, b->region->members + index));
	b->end->info.addr_format = FI_FORMAT_UNSPEC;
	assert_int_equal(known(b, a)->peer->state, PEER_PRESENT);
	fake_close(&world);
}

/* Three frames from a to b that the test delivers by hand, after a first message that is on its way. */
static void keep_back(unsigned char frames[3][FRAME_MAX], size_t lengths[3])
{
	(void)fake_peer(b, a);
	(void)frame_of(frames[0], 8); /* with the HELLO */
	for (int i = 0; i < 3; i++) {
		a->end->ends = NULL; /* frames sent from here on are delivered by hand */
		struct fake_end lost[FAKE_ENDS] = {{.posted_count = 1, .posted = {{.length = 0}}}};
		for (uint32_t k = 0; k < FAKE_ENDS; k++)
			lost[k].posted_count = 1;
		a->end->ends = lost;
		lengths[i] = frame_of(frames[i], 8 + (size_t)i);
		a->end->ends = world.ends;
	}
}

/* A lost or repeated frame is detected. A frame that arrives too early waits for its turn. */
static void test_the_order_of_frames(void **state)
{
	unsigned char frames[3][FRAME_MAX];
	size_t lengths[3];

	(void)state;
	fake_open(&world);
	keep_back(frames, lengths);
	static const int order[] = {2, 1, 0};
	for (int i = 0; i < 3; i++) {
		assert_true(fake_deliver(b->end, frames[order[i]], lengths[order[i]]));
		fake_settle(&world);
	}
	assert_int_equal(known(b, a)->peer->state, PEER_PRESENT);
	for (size_t i = 0; i < 4; i++) {
		assert_int_equal(fake_receive(b, MATCH_ANY_SOURCE, in, 100, 1), 0);
		assert_int_equal(fake_next(&b->node.receives).length, i == 0 ? 8 : 7 + i);
	}
	assert_true(fake_deliver(b->end, frames[0], lengths[0]));
	fake_settle(&world);
	assert_int_equal(known(b, a)->peer->failure, -EPROTO);
	assert_int_equal(b->end->posted_count, NETWORK_BUFFERS);
	/* It learns of the failure. */
	assert_int_equal(known(a, b)->peer->failure, -ECONNABORTED);
	fake_close(&world);
}

/* If a peer repeats any of the frames that wait for an earlier one, it loses its connection. */
static void test_a_waiting_frame_that_comes_again(void **state)
{
	unsigned char frames[3][FRAME_MAX];
	size_t lengths[3];

	(void)state;
	for (int again = 1; again < 3; again++) {
		fake_open(&world);
		keep_back(frames, lengths);
		for (int i = 2; i > 0; i--) {
			assert_true(fake_deliver(b->end, frames[i], lengths[i]));
			fake_settle(&world);
		}
		assert_int_equal(known(b, a)->peer->state, PEER_PRESENT);
		assert_non_null(known(b, a)->held->next);
		assert_true(fake_deliver(b->end, frames[again], lengths[again]));
		fake_settle(&world);
		assert_int_equal(known(b, a)->peer->failure, -EPROTO);
		fake_close(&world);
	}
}

/* A frame has at most FRAME_SLOTS_MAX slots, even if each of them is valid. */
static void test_a_frame_of_too_many_slots(void **state)
{
	struct {
		struct frame_header header;
		struct frame_slot slots[FRAME_SLOTS_MAX + 1];
	} frame;

	(void)state;
	for (uint16_t slots = FRAME_SLOTS_MAX; slots <= FRAME_SLOTS_MAX + 1; slots++) {
		unsigned char last[FRAME_MAX];
		fake_open(&world);
		(void)fake_peer(b, a);
		(void)frame_of(last, 8);
		fake_settle(&world);
		memcpy(&frame.header, last, sizeof(frame.header));
		frame.header.sequence++;
		frame.header.slots = slots;
		for (uint16_t i = 0; i < slots; i++)
			frame.slots[i] = (struct frame_slot){.control = control_word(WIRE_RECLAIM, 0, 0)};
		assert_true(
			fake_deliver(b->end, &frame, sizeof(frame.header) + slots * sizeof(frame.slots[0])));
		fake_settle(&world);
		assert_int_equal(known(b, a)->peer->failure, slots > FRAME_SLOTS_MAX ? -EPROTO : 0);
		fake_close(&world);
	}
}

/* Frames with any byte or the length changed: whatever happens to the peer, nothing else is harmed. */
static void test_frames_of_a_hostile_peer(void **state)
{
	static const size_t sizes[] = {8, 300, 4096, 100000};
	static unsigned char frame[FRAME_MAX + 64];
	uint64_t seed = 0x5eed;
	uint32_t failed = 0;

	(void)state;
	for (int round = 0; round < 400; round++) {
		fake_open(&world);
		uint32_t from_a = fake_peer(b, a)->peer.source;
		assert_int_equal(fake_receive(b, from_a, in, sizeof(in), 1), 0);
		size_t length = frame_of(frame, sizes[round % 4]);
		b->end->read_error = EIO; /* of an offer: the fake core would read from any address */
		fake_settle(&world);
		for (int repeat = 0; repeat < 8; repeat++) {
			struct frame_header header;
			memcpy(&header, frame, sizeof(header));
			header.sequence++;
			memcpy(frame, &header, sizeof(header));
			for (uint32_t changes = 1 + random_below(&seed, 3); changes > 0; changes--) {
				/* Not the nonces, because the frame would be dropped at once. */
				size_t at = random_below(&seed, 4) == 0
						    ? 4 + random_below(&seed, 4)
						    : 28 + random_below(&seed, (uint32_t)length - 28);
				frame[at] = (unsigned char)next_random(&seed);
			}
			size_t cut = random_below(&seed, 4) == 0 ? random_below(&seed, (uint32_t)length + 8)
								 : length;
			(void)fake_deliver(b->end, frame, cut);
			fake_settle(&world);
		}
		failed += known(b, a)->peer->state == PEER_FAILED;
		/* Other peers go on. */
		struct far_node *c = &world.nodes[2];
		assert_int_equal(fake_receive(b, MATCH_ANY_SOURCE, in, 8, 0x7e57), 0);
		while (!completion_is_empty(&b->node.receives))
			(void)fake_next(&b->node.receives);
		assert_int_equal(fake_send(c, fake_peer(c, b), "12345678", 8, 0x7e57), 0);
		fake_settle(&world);
		assert_int_equal(fake_next(&b->node.receives).length, 8);
		fake_close(&world);
	}
	assert_in_range(failed, 100, 400);
}

/*
 * A process that polls now and then between other work, and exchanges messages with other peers through its
 * region, receives messages over the network within a few polls, not after hundreds.
 */
static void test_polls_that_are_far_apart(void **state)
{
	enum { FAR_MICROSECONDS = 20, LEARNING = 1024, FEW = 60 };
	struct completion_queue *receives = &b->node.receives;

	(void)state;
	fake_open(&world);
	uint32_t from_a = fake_peer(b, a)->peer.source;
	struct msg_peer *to_b = fake_peer(a, b);
	for (uint32_t i = 0; i < LEARNING; i++) {
		(void)messenger_progress(b->node.messenger);
		usleep(FAR_MICROSECONDS);
	}
	for (uint32_t i = 0; i < 5; i++) {
		uint32_t polls = 0;
		assert_int_equal(fake_receive(b, from_a, in, 8, i), 0);
		assert_int_equal(fake_send(a, to_b, "12345678", 8, i), 0);
		for (; completion_is_empty(receives) && polls < LEARNING; polls++) {
			usleep(FAR_MICROSECONDS);
			(void)messenger_progress(b->node.messenger);
		}
		assert_in_range(polls, 1, FEW);
		assert_int_equal(fake_next(receives).length, 8);
		/*
		 * The peer must not count as the one that is expected next: its network is read at every
		 * poll.
		 */
		fake_transport(b)->network->patience = 1;
		(void)messenger_progress(b->node.messenger);
	}
	fake_close(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_messages_of_all_sizes),
		cmocka_unit_test(test_slots_wait_for_the_core),
		cmocka_unit_test(test_a_full_ring_is_told),
		cmocka_unit_test(test_chunks_come_back_from_the_core),
		cmocka_unit_test(test_a_stranger_says_who_it_is),
		cmocka_unit_test(test_what_the_core_says_ends_a_peer),
		cmocka_unit_test(test_who_leaves_is_told),
		cmocka_unit_test(test_strays_are_dropped),
		cmocka_unit_test(test_another_version_is_said_once),
		cmocka_unit_test(test_hellos_that_cannot_be),
		cmocka_unit_test(test_the_order_of_frames),
		cmocka_unit_test(test_a_waiting_frame_that_comes_again),
		cmocka_unit_test(test_a_frame_of_too_many_slots),
		cmocka_unit_test(test_frames_of_a_hostile_peer),
		cmocka_unit_test(test_polls_that_are_far_apart),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
