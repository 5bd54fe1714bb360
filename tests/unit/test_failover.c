/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers that can no longer use their region. Operations in progress end in error at both ends. Later messages
 * go over the network, whole and in order.
 */
#include "fake_core.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "shared_name.h"
#include "transport/failover.h"
#include "transport/region_transport.h"
#include "transport/switch.h"

#define BYTES ((size_t)1 << 20)
#define LONG 300000U /* longer than a message that needs no answer */

static unsigned char in[BYTES];
static unsigned char out[BYTES];

static struct far_node *a = &fakes.nodes[0];
static struct far_node *b = &fakes.nodes[1];
static struct far_node *c = &fakes.nodes[2];

static struct connection_line *line(const struct far_node *from, const struct far_node *to)
{
	return section_connection(from->region, fake_transport(from)->attachments[0].member->slot,
				  fake_transport(to)->attachments[0].member->slot);
}

/* Make progress until no peer waits for an answer. Peers repeat their questions from time to time. */
static void settle(void)
{
	enum { GUARD_ROUNDS = 12000 }; /* at least a minute, only against hanging */
	const struct timespec pause = {.tv_nsec = 5000000};
	uint32_t waiting = 1;

	for (int round = 0; waiting > 0; round++) {
		waiting = 0;
		fake_settle(&fakes);
		for (uint32_t i = 0; i < FAKE_ENDS; i++)
			waiting += fake_transport(&fakes.nodes[i])->switches;
		assert_true(round < GUARD_ROUNDS);
		(void)nanosleep(&pause, NULL);
	}
}

static void talk(struct far_node *from, struct far_node *to, size_t length, uint64_t seed)
{
	fake_talk(&fakes, from, fake_neighbour(from, to), to, fake_neighbour(to, from)->peer.source, length,
		  seed);
}

/* Send messages of every protocol in both directions. */
static void talk_of_all(struct far_node *one, struct far_node *other)
{
	static const size_t sizes[] = {0, 8, 300, 4096, 16384, 100000, BYTES};

	for (uint64_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		talk(one, other, sizes[i], 100 + i);
		talk(other, one, sizes[i], 200 + i);
	}
}

static int open_world(void **state)
{
	(void)fake_setup(state);
	talk(a, b, 8, 1);
	talk(b, a, 8, 2);
	talk(c, a, 8, 3);
	return 0;
}

#define WITH_WORLD(name) cmocka_unit_test_setup_teardown(name, open_world, fake_teardown)

/* b writes an invalid slot into its ring to a. */
static void violate(void)
{
	ring_push(&fake_neighbour(b, a)->peer.out, control_word(200, 0, 0), 1);
}

static void assert_failed_over(struct far_node *at, const struct far_node *whom)
{
	const struct peer *there = &fake_neighbour(at, whom)->peer;

	/* A node without operations in progress learns of the failover at its next call. */
	if (there->state == PEER_ERROR_PENDING)
		assert_true(fake_send(at, fake_neighbour(at, whom), "x", 1, 1) < 0);
	assert_int_equal(there->state, PEER_PRESENT);
	assert_int_equal(there->failover, FAILOVER_DONE);
	assert_non_null(there->network);
	assert_true(there->framed);
	assert_int_equal(fake_transport(at)->switches, 0);
	if (!fake_transport(at)->attachments[0].evicted)
		assert_int_equal(shared_load_u32(&line(at, whom)->route), CONNECTION_ENDED);
}

static void assert_given_up(const struct far_node *at, const struct far_node *whom)
{
	assert_int_equal(fake_neighbour(at, whom)->peer.state, PEER_FAILED);
	assert_int_equal(fake_transport(at)->switches, 0);
	assert_true(fake_send((struct far_node *)(uintptr_t)at, fake_neighbour(at, whom), "x", 1, 1) < 0);
}

static void drop_completions(void)
{
	for (uint32_t i = 0; i < FAKE_ENDS; i++) {
		fakes.nodes[i].node.sends.head = fakes.nodes[i].node.sends.tail;
		fakes.nodes[i].node.receives.head = fakes.nodes[i].node.receives.tail;
	}
}

static void test_what_is_under_way_ends_and_the_rest_goes_on(void **state)
{
	static unsigned char kept[4096];

	(void)state;
	/* One whole message without a receive, and long messages whose first pieces have arrived. */
	fill_bytes(kept, sizeof(kept), 7);
	assert_int_equal(fake_send(b, fake_neighbour(b, a), kept, sizeof(kept), 7), 0);
	assert_int_equal(fake_send(b, fake_neighbour(b, a), out, LONG, 8), 0);
	assert_int_equal(fake_send(a, fake_neighbour(a, b), out, LONG, 9), 0);
	assert_int_equal(fake_receive(a, fake_neighbour(a, b)->peer.source, in, 8, 10), 0);
	assert_int_equal(fake_receive(b, fake_neighbour(b, a)->peer.source, in, 8, 11), 0);
	assert_int_equal(fake_receive(a, MATCH_ANY_SOURCE, in, 8, 12), 0);
	fake_settle(&fakes);
	violate();
	settle();
	assert_failed_over(a, b);
	assert_failed_over(b, a);
	/* Each of these completes once. */
	assert_int_equal(fake_next(&a->node.sends).error, EPROTO);
	assert_int_equal(fake_next(&a->node.receives).error, EPROTO);
	assert_int_equal(fake_next(&b->node.sends).error, 0);
	assert_int_equal(fake_next(&b->node.sends).error, ECONNABORTED);
	assert_int_equal(fake_next(&b->node.receives).error, ECONNABORTED);
	assert_true(completion_is_empty(&a->node.sends) && completion_is_empty(&a->node.receives));
	assert_true(completion_is_empty(&b->node.sends) && completion_is_empty(&b->node.receives));
	/* A message that arrived whole before is still there. A message that did not is lost. */
	assert_int_equal(fake_receive(a, fake_neighbour(a, b)->peer.source, in, sizeof(kept), 7), 0);
	assert_int_equal(fake_next(&a->node.receives).error, 0);
	assert_bytes(in, sizeof(kept), 7);
	/* The receive from any source is still posted. */
	fill_bytes(out, 8, 12);
	assert_int_equal(fake_send(b, fake_neighbour(b, a), out, 8, 12), 0);
	fake_settle(&fakes);
	assert_int_equal(fake_next(&b->node.sends).error, 0);
	assert_int_equal(fake_next(&a->node.receives).error, 0);
	assert_bytes(in, 8, 12);
	talk_of_all(a, b);
	talk(c, a, 100000, 13);
	assert_null(fake_neighbour(c, a)->peer.network);
	/* Nothing went through the region. */
	assert_false(fake_neighbour(a, b)->peer.receiving || fake_neighbour(b, a)->peer.receiving);
}

/* Operations posted before both agree wait, and complete in order, before later ones. */
static void test_what_is_posted_meanwhile_waits(void **state)
{
	const struct iovec piece = {in, 1};
	const struct receive_request request = {.pieces = &piece,
						.count = 1,
						.source = fake_neighbour(a, b)->peer.source,
						.tag = 6,
						.flags = FI_TAGGED};

	(void)state;
	violate();
	for (int i = 0; i < 100; i++) {
		(void)messenger_progress(a->node.messenger);
		(void)transport_progress_full(fake_transport(a));
	}
	assert_true(transport_is_failing_over(&fake_neighbour(a, b)->peer));
	/* No operation was in progress that could have reported the failure. */
	assert_false(messenger_may_receive(a->node.messenger, fake_neighbour(a, b), &request));
	assert_int_equal(transport_refuse(&fake_neighbour(a, b)->peer), -EPROTO);
	assert_true(messenger_may_receive(a->node.messenger, fake_neighbour(a, b), &request));
	assert_int_equal(fake_send(a, fake_neighbour(a, b), "x", 1, 5), -EAGAIN);
	assert_int_equal(fake_receive(a, fake_neighbour(a, b)->peer.source, in, 1, 6), 0);
	assert_true(completion_is_empty(&a->node.receives));
	settle();
	assert_failed_over(a, b);
	assert_failed_over(b, a);
	assert_int_equal(fake_send(b, fake_neighbour(b, a), "y", 1, 6), 0);
	fake_settle(&fakes);
	assert_int_equal(fake_next(&a->node.receives).error, 0);
	assert_int_equal(in[0], 'y');
}

/* Every invalid value that a member can find in another member's part of the region. */
static void test_whatever_it_is(void **state)
{
	for (int which = 0; which < 7; which++) {
		if (which > 0) {
			(void)fake_teardown(state);
			(void)open_world(state);
		}
		uint32_t self = fake_transport(a)->attachments[0].member->slot;
		uint32_t other = fake_transport(b)->attachments[0].member->slot;
		struct credit_line *credit = section_credit(a->region, other, self);
		const struct ring_out *ring = &fake_neighbour(a, b)->peer.out;
		switch (which) {
		case 0: /* credit for slots that were not sent */
			shared_store_u64(&credit->consumed, (uint64_t)ring->connection << 32 | 1000);
			break;
		case 1: /* a ring that seems closed by b */
			ring_refuse(credit, ring->connection);
			break;
		case 2: /* another ring */
			shared_store_u32(&line(b, a)->id, shared_load_u32(&line(b, a)->id) + 2);
			transport_ring(&fake_neighbour(b, a)->peer);
			break;
		case 3: /* the word that b writes if it finds a violation */
			shared_store_u32(&line(b, a)->ended, fake_transport(a)->attachments[0].member->epoch);
			transport_ring_doorbell(&fake_neighbour(b, a)->peer);
			break;
		case 4: /* its slot belongs to another member, which has b's nonce */
			shared_store_u64(&region_slot(a->region, other)->claim,
					 (uint64_t)9 << 32 | SLOT_JOINED);
			transport_ring_doorbell(&fake_neighbour(b, a)->peer);
			for (int i = 0; i < 70; i++)
				(void)transport_progress_full(fake_transport(a));
			assert_ptr_equal(fake_transport(a)->peers[other], &fake_neighbour(a, b)->peer);
			break;
		case 5: /* its slot belongs to no member */
			shared_store_u64(&region_slot(a->region, other)->claim, (uint64_t)99 << 32);
			break;
		default: /* a slot that was overwritten */
			shared_store_u64(&ring_next(&fake_neighbour(b, a)->peer.out, 0)->control, 0x8000);
			break;
		}
		for (uint32_t i = 0; i < FAKE_ENDS; i++)
			transport_check_peers(fake_transport(&fakes.nodes[i]));
		settle();
		assert_failed_over(a, b);
		assert_failed_over(b, a);
		drop_completions();
		talk_of_all(a, b);
		/* Its doorbell has no effect any more. */
		transport_ring_doorbell(&fake_neighbour(b, a)->peer);
		talk_of_all(b, a);
	}
}

/* Both find a violation before either learns of the other's. */
static void test_both_at_once(void **state)
{
	(void)state;
	violate();
	ring_push(&fake_neighbour(a, b)->peer.out, control_word(201, 0, 0), 1);
	settle();
	assert_failed_over(a, b);
	assert_failed_over(b, a);
	talk_of_all(a, b);
}

static void request_route(bool network)
{
	fake_request_route(b, network);
	for (int round = 0; round < 4; round++) {
		for (uint32_t i = 0; i < FAKE_ENDS; i++)
			transport_begin_switches(fake_transport(&fakes.nodes[i]));
		fake_settle(&fakes);
	}
}

/* The core still has frames from before: their chunks come back, and frames that arrive late are dropped. */
static void test_frames_of_before_are_dropped(void **state)
{
	unsigned char old[FRAME_MAX];
	struct network *network = fake_transport(a)->network;

	(void)state;
	request_route(true);
	assert_non_null(fake_neighbour(a, b)->peer.network);
	talk(a, b, 4000, 5);
	/* A frame that is sent now, and arrives after everything else. */
	b->end->sinks = true;
	assert_int_equal(fake_send(a, fake_neighbour(a, b), out, 4000, 6), 0);
	size_t length = a->end->last_length;
	memcpy(old, a->end->last, length);
	b->end->sinks = false;
	assert_int_equal(fake_neighbour(a, b)->peer.beyond->in_flight, 1);
	shared_store_u32(&line(b, a)->ended, fake_transport(a)->attachments[0].member->epoch);
	transport_ring_doorbell(&fake_neighbour(b, a)->peer);
	settle();
	assert_failed_over(a, b);
	assert_failed_over(b, a);
	drop_completions();
	uint64_t strays = fake_transport(b)->network->strays;
	assert_true(fake_deliver(b->end, old, length));
	fake_settle(&fakes);
	assert_int_equal(fake_transport(b)->network->strays, strays + 1);
	talk_of_all(a, b);
	(void)chunk_collect(&network->chunks, &fake_neighbour(a, b)->peer.account);
	uint32_t back = 0;
	for (uint32_t i = 0; i < CHUNK_CLASSES; i++)
		back += network->chunks.classes[i].free_count;
	assert_int_equal(back, network->chunks.count);
	/* The manager's request has no effect on this. */
	request_route(false);
	assert_failed_over(a, b);
	talk_of_all(a, b);
}

/* b's HELLO overtakes its answer. */
static void test_a_hello_in_place_of_an_answer(void **state)
{
	(void)state;
	violate();
	a->end->sinks = true;
	fake_settle(&fakes);
	assert_true(transport_is_failing_over(&fake_neighbour(a, b)->peer));
	while (transport_is_failing_over(&fake_neighbour(b, a)->peer))
		fake_settle(&fakes);
	assert_failed_over(b, a);
	struct {
		struct frame_header header;
		struct frame_hello hello;
	} frame = {.header = {.magic = FRAME_MAGIC,
			      .version = FRAME_VERSION,
			      .kind = FRAME_HELLO,
			      .stream = 1,
			      .to = fake_transport(a)->attachments[0].member->nonce,
			      .from = fake_transport(b)->attachments[0].member->nonce}};
	network_write_hello(fake_transport(b)->network, &frame.hello);
	a->end->sinks = false;
	assert_true(fake_deliver(a->end, &frame, sizeof(frame)));
	/* The answer was sent already, and was lost. */
	settle();
	assert_failed_over(a, b);
	talk_of_all(a, b);
}

/* A peer that is in no network, or that does not answer, is given up. Operations posted meanwhile fail. */
static void test_without_a_way(void **state)
{
	(void)state;
	struct section_header *header =
		section_header(b->region, fake_transport(b)->attachments[0].member->slot);
	shared_store_u32(&header->core, 0);
	fake_neighbour(a, b)->peer.where.length = 0;
	a->end->sinks = true;
	violate();
	fake_settle(&fakes);
	assert_given_up(a, b);
	/* b asks, and nothing answers. */
	assert_true(transport_is_failing_over(&fake_neighbour(b, a)->peer));
	fake_neighbour(b, a)->peer.beyond->failover_since -= UINT64_C(4000000000);
	settle();
	assert_given_up(b, a);
	a->end->sinks = false;
	talk(c, a, 8, 4);
	(void)fake_teardown(state);
	(void)open_world(state);
	a->end->sinks = b->end->sinks = true;
	violate();
	fake_settle(&fakes);
	struct peer *lost = &fake_neighbour(a, b)->peer;
	assert_true(transport_is_failing_over(lost));
	assert_int_equal(fake_receive(a, lost->source, in, 8, 9), 0);
	lost->beyond->failover_since -= UINT64_C(4000000000);
	settle();
	assert_given_up(a, b);
	assert_int_equal(fake_next(&a->node.receives).error, EHOSTUNREACH);
}

/* A peer that was taken for dead and lives asks, and is refused at once. */
static void test_one_that_was_taken_for_dead_is_refused(void **state)
{
	(void)state;
	assert_true(network_attach(fake_transport(a), &fake_neighbour(a, b)->peer));
	assert_int_equal(fake_receive(b, fake_neighbour(b, a)->peer.source, in, 8, 9), 0);
	transport_fail(fake_transport(a), &fake_neighbour(a, b)->peer, -ECONNRESET, "it died");
	settle();
	assert_given_up(a, b);
	assert_given_up(b, a);
	assert_int_equal(fake_next(&b->node.receives).error, ECONNABORTED);
}

/* The network is the last transport: a peer that breaks the protocol there too is given up. */
static void test_only_once(void **state)
{
	struct frame_slot slot = {.control = (uint64_t)200 << 16};
	unsigned char frame[sizeof(struct frame_header) + sizeof(slot)];

	(void)state;
	violate();
	settle();
	assert_failed_over(a, b);
	struct frame_header header = {.magic = FRAME_MAGIC,
				      .version = FRAME_VERSION,
				      .kind = FRAME_SLOTS,
				      .slots = 1,
				      .stream = 1,
				      .to = fake_transport(a)->attachments[0].member->nonce,
				      .from = fake_transport(b)->attachments[0].member->nonce,
				      .sequence = fake_neighbour(a, b)->peer.beyond->expected};
	memcpy(frame, &header, sizeof(header));
	memcpy(frame + sizeof(header), &slot, sizeof(slot));
	assert_true(fake_deliver(a->end, frame, sizeof(frame)));
	settle();
	assert_given_up(a, b);
	assert_int_equal(fake_neighbour(a, b)->peer.failure, -EPROTO);
	assert_given_up(b, a);
}

struct failover_frame {
	struct frame_header header;
	struct frame_failover failover;
};

static struct failover_frame failover(const struct far_node *from, const struct far_node *to)
{
	const struct member *member = fake_transport(from)->attachments[0].member;
	struct failover_frame frame = {
		.header = {.magic = FRAME_MAGIC,
			   .version = FRAME_VERSION,
			   .kind = FRAME_FAILOVER,
			   .stream = 1,
			   .to = fake_transport(to)->attachments[0].member->nonce,
			   .from = member->nonce},
		.failover = {.region = {member->region->id[0], member->region->id[1]},
			     .slot = member->slot,
			     .epoch = member->epoch},
	};

	network_write_hello(fake_transport(from)->network, &frame.failover.hello);
	return frame;
}

/* Invalid FAILOVER frames are dropped, without harm to any pair. */
static void test_failovers_that_cannot_be(void **state)
{
	(void)state;
	network_listen(fake_transport(a));
	for (int which = 0; which < 10; which++) {
		struct failover_frame frame = failover(b, a);
		size_t length = sizeof(frame);
		switch (which) {
		case 0:
			length--;
			break;
		case 1:
			frame.header.stream = 2;
			break;
		case 2:
			frame.header.sequence = 2;
			break;
		case 3:
			frame.failover.slot = FAKE_MEMBERS;
			break;
		case 4:
			frame.failover.slot = UINT32_MAX;
			break;
		case 5:
			frame.failover.slot = fake_transport(a)->attachments[0].member->slot;
			break;
		case 6:
			frame.failover.epoch++;
			break;
		case 7:
			frame.header.from++;
			break;
		case 8:
			frame.failover.region[1]++; /* a region that the receiver is not in */
			break;
		default:
			frame.failover.hello.length = CORE_NAME_MAX + 1;
			break;
		}
		uint64_t strays = fake_transport(a)->network->strays;
		assert_true(fake_deliver(a->end, &frame, length));
		fake_settle(&fakes);
		assert_int_equal(fake_transport(a)->network->strays, strays + 1);
		assert_int_equal(fake_neighbour(a, b)->peer.state, PEER_PRESENT);
		assert_int_equal(fake_neighbour(a, b)->peer.failover, FAILOVER_NONE);
	}
	talk_of_all(a, b);
	assert_null(fake_neighbour(a, b)->peer.network);
}

/*
 * A valid FAILOVER frame without any violation: the pair goes over to the network once. Later frames have no
 * effect.
 */
static void test_failovers_of_a_liar(void **state)
{
	(void)state;
	network_listen(fake_transport(a));
	struct failover_frame frame = failover(b, a);
	assert_true(fake_deliver(a->end, &frame, sizeof(frame)));
	settle();
	assert_failed_over(a, b);
	assert_failed_over(b, a);
	talk_of_all(a, b);
	for (uint32_t answers = 0; answers < 2; answers++) {
		frame.header.sequence = answers;
		assert_true(fake_deliver(a->end, &frame, sizeof(frame)));
		settle();
	}
	talk_of_all(a, b);
}

/* ---- the region's file is truncated ---- */

static char file_path[SHARED_NAME_BYTES];
static int file_fd;

/*
 * Each node has a mapping of its own, as processes have. Called within the test, because the test has its own
 * signal handlers.
 */
static void open_on_file(void)
{
	static const uint64_t id[2] = {5, 6};
	size_t bytes = region_size(FAKE_MEMBERS, WORLD_SECTION_BYTES);
	struct region *regions[FAKE_ENDS];
	char name[96];

	shared_name(file_path);
	file_fd = mkostemp(file_path, O_CLOEXEC);
	assert_true(file_fd >= 0);
	(void)snprintf(name, sizeof(name), "file:%s", file_path);
	assert_int_equal(posix_fallocate(file_fd, 0, (off_t)bytes), 0);
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_fd, 0);
	assert_ptr_not_equal(base, MAP_FAILED);
	assert_int_equal(region_format(base, bytes, FAKE_MEMBERS, WORLD_SECTION_BYTES, id), 0);
	assert_int_equal(munmap(base, bytes), 0);
	for (uint32_t i = 0; i < FAKE_ENDS; i++) {
		struct region_error error;
		assert_int_equal(region_attach(name, &regions[i], &error), 0);
	}
	fake_open_in(&fakes, regions);
	talk(a, b, 8, 1);
	talk(b, a, 8, 2);
}

static void close_file(void)
{
	fake_close(&fakes);
	assert_int_equal(close(file_fd), 0);
	assert_int_equal(unlink(file_path), 0);
}

static void cut(void)
{
	assert_int_equal(ftruncate(file_fd, 0), 0);
	for (uint32_t i = 0; i < FAKE_ENDS; i++)
		transport_check_peers(fake_transport(&fakes.nodes[i]));
	settle();
}

static void test_all_go_on_when_the_file_is_cut(void **state)
{
	(void)state;
	open_on_file();
	const struct msg_peer *self = fake_neighbour(a, a);
	talk(a, a, 8, 3);
	assert_int_equal(fake_send(a, fake_neighbour(a, b), out, LONG, 9), 0);
	assert_int_equal(fake_receive(b, fake_neighbour(b, a)->peer.source, in, 8, 11), 0);
	assert_int_equal(fake_receive(a, self->peer.source, in, 8, 12), 0);
	fake_settle(&fakes);
	cut();
	assert_int_equal(fake_next(&a->node.sends).error, ECONNABORTED);
	assert_int_equal(fake_next(&b->node.receives).error, ECONNABORTED);
	assert_int_equal(fake_next(&a->node.receives).error, ECONNABORTED);
	assert_failed_over(a, b);
	assert_failed_over(b, a);
	talk_of_all(a, b);
	/* Messages to itself too. */
	talk_of_all(a, a);
	assert_null(self->peer.network);
	close_file();
}

/* Some nodes had not exchanged messages before: only their addresses say where they are. */
static void test_new_pairs_after_the_cut(void **state)
{
	struct member_core where = {.provider = 7, .length = 1, .name = {2}};

	(void)state;
	open_on_file();
	const struct member *member = fake_transport(c)->attachments[0].member;
	assert_null(transport_meet_without_region(fake_transport(a), member->slot, member->epoch,
						  member->nonce, &where));
	cut();
	assert_null(transport_meet(fake_transport(a), member->slot, member->epoch, member->nonce));
	assert_null(transport_meet_without_region(fake_transport(a), FAKE_MEMBERS, 1, 1, &where));
	struct peer *met = transport_meet_without_region(fake_transport(a), member->slot, member->epoch,
							 member->nonce, &where);
	assert_non_null(met);
	assert_ptr_equal(met, transport_meet_without_region(fake_transport(a), member->slot, member->epoch,
							    member->nonce, &where));
	assert_null(transport_meet_without_region(fake_transport(a), member->slot, member->epoch, 1, &where));
	assert_int_equal(fake_receive(c, MATCH_ANY_SOURCE, in, 5, 1), 0);
	fake_settle(&fakes);
	assert_int_equal(fake_send(a, (struct msg_peer *)(void *)met, "12345", 5, 1), 0);
	fake_settle(&fakes);
	struct completion got = fake_next(&c->node.receives);
	assert_int_equal(got.error, 0);
	assert_int_equal((uint32_t)got.source, fake_transport(a)->attachments[0].member->slot);
	assert_memory_equal(in, "12345", 5);
	drop_completions();
	talk_of_all(a, c);
	assert_failed_over(a, b);
	assert_failed_over(b, a);
	talk_of_all(a, b);
	close_file();
}

/*
 * Our slot belongs to another member: we write nothing there any more, and go on with the peers that we know.
 */
static void test_one_whose_slot_is_anothers(void **state)
{
	(void)state;
	shared_store_u64(&region_slot(b->region, fake_transport(b)->attachments[0].member->slot)->claim,
			 (uint64_t)99 << 32 | 2);
	for (uint32_t i = 0; i < FAKE_ENDS; i++)
		transport_check_peers(fake_transport(&fakes.nodes[i]));
	fake_settle(&fakes);
	assert_true(fake_transport(b)->attachments[0].evicted);
	assert_failed_over(a, b);
	assert_failed_over(b, a);
	talk_of_all(a, b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_WORLD(test_what_is_under_way_ends_and_the_rest_goes_on),
		WITH_WORLD(test_what_is_posted_meanwhile_waits),
		WITH_WORLD(test_whatever_it_is),
		WITH_WORLD(test_both_at_once),
		WITH_WORLD(test_frames_of_before_are_dropped),
		WITH_WORLD(test_a_hello_in_place_of_an_answer),
		WITH_WORLD(test_without_a_way),
		WITH_WORLD(test_one_that_was_taken_for_dead_is_refused),
		WITH_WORLD(test_only_once),
		WITH_WORLD(test_failovers_that_cannot_be),
		WITH_WORLD(test_failovers_of_a_liar),
		WITH_WORLD(test_one_whose_slot_is_anothers),
		cmocka_unit_test(test_all_go_on_when_the_file_is_cut),
		cmocka_unit_test(test_new_pairs_after_the_cut),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
