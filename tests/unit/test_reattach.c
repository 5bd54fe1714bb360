/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Endpoints that leave a region for good, as before their machine goes to another host, and come back to
 * another region or to the same one. Each maps its regions for itself, as guests do. The name of a file
 * stands for the location where a device is plugged.
 */
#include "regions.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/single_copy.h"
#include "transport/detach.h"
#include "transport/network_transport.h"
#include "transport/reattach.h"
#include "transport/region_transport.h"
#include "transport/switch.h"

static struct attachment *attachment_of(int index)
{
	struct attachment *home = &transport_of(index)->attachments[0];

	return home->next != NULL ? home->next : home;
}

/* The manager's request to `index` in its current region. */
static void request_route(int index, enum requested_route wanted)
{
	const struct member *member = attachment_of(index)->member;
	struct region *region = NULL;
	struct region_error error;

	/*
	 * Written through a mapping of the manager, because the endpoint's mapping may be private memory by
	 * now.
	 */
	assert_int_equal(region_attach(member->region->name, &region, &error), 0);
	shared_store_u64(&region_slot(region, member->slot)->requested_route,
			 (uint64_t)member->epoch << 32 | wanted);
	region_detach(region);
}

static bool has_left(int index)
{
	return attachment_of(index)->region->left;
}

/* A member that left does not search for a region meanwhile, unless the test asks for it. */
static void settle(void)
{
	for (int round = 0; round < 8; round++)
		settle_switches();
}

static void hold_still(int index)
{
	transport_of(index)->attachments[0].next_search = UINT64_MAX;
}

static void search_now(int index)
{
	transport_of(index)->attachments[0].next_search = 0;
	settle();
}

static void leave(int index)
{
	hold_still(index);
	request_route(index, ROUTE_LEAVE);
	settle();
	assert_true(has_left(index));
}

/* Another region is plugged instead of the first region. */
static void plug(char which, char where)
{
	assert_int_equal(unlink(files[where - '1']), 0);
	assert_int_equal(link(files[which - '1'], files[where - '1']), 0);
}

static bool through_region(int one, int other)
{
	const struct peer *peer = &meet(one, other)->peer;

	return peer->network == NULL && !peer->framed && peer->attachment != NULL;
}

static uint64_t claim_in_file(const char *file, uint32_t slot)
{
	struct region *region = NULL;
	struct region_error error;
	char name[96];

	(void)snprintf(name, sizeof(name), "file:%s", file);
	assert_int_equal(region_attach(name, &region, &error), 0);
	uint64_t claim = shared_load_u64(&region_slot(region, slot)->claim);
	region_detach(region);
	return claim;
}

static void test_who_leaves_has_nothing_of_the_region(void **state)
{
	(void)state;
	open_endpoints("1", "1", "1");
	talk_of_all(A, B);
	talk_of_all(B, C);
	const struct region *region = attachment_of(A)->region;
	uint32_t slot = attachment_of(A)->member->slot;
	uint32_t epoch = attachment_of(A)->member->epoch;
	leave(A);
	assert_int_equal(region->fd, -1);
	assert_int_equal(attachment_of(A)->member->lock_fd, -1);
	assert_int_equal(claim_in_file(files[0], slot), (uint64_t)epoch << 32 | SLOT_FREE);
	assert_int_equal(shared_load_u64(&region_slot(region, attachment_of(B)->member->slot)->claim), 0);
	/* The others are as before, and A reaches them over the network, even a peer that it had not met. */
	assert_true(through_region(B, C));
	talk_of_all(A, B);
	talk_of_all(A, C);
	talk_of_all(B, C);
	talk_of_all(A, A);
	/* The region's further fate does not concern it. */
	cut_file('1');
	settle();
	talk_of_all(A, A);
	assert_int_equal(meet(A, B)->peer.state, PEER_PRESENT);
	close_endpoints();
}

/* No waiting message is lost: neither messages that nobody received yet, nor messages to itself. */
static void test_what_waits_stays(void **state)
{
	static unsigned char first[5000];
	static unsigned char second[60];

	(void)state;
	open_endpoints("1", "1", "1");
	talk_of_all(A, B);
	talk_of_all(A, A);
	fill_bytes(first, sizeof(first), 1);
	fill_bytes(second, sizeof(second), 2);
	struct msg_peer *to_b = meet(A, B);
	struct msg_peer *to_itself = meet(A, A);
	assert_int_equal(fake_send(&world.nodes[A], to_b, first, sizeof(first), 1), 0);
	assert_int_equal(fake_send(&world.nodes[A], to_itself, first, sizeof(first), 1), 0);
	assert_int_equal(fake_send(&world.nodes[A], to_itself, second, sizeof(second), 2), 0);
	settle();
	leave(A);
	for (int at = B; at >= A; at--) {
		uint32_t source = meet(at, A)->peer.source;
		memset(in, 0, sizeof(first));
		assert_int_equal(fake_receive(&world.nodes[at], source, in, sizeof(first), 1), 0);
		settle();
		assert_int_equal(fake_next(&world.nodes[at].node.receives).error, 0);
		assert_bytes(in, sizeof(first), 1);
	}
	assert_int_equal(fake_receive(&world.nodes[A], meet(A, A)->peer.source, in, sizeof(second), 2), 0);
	settle();
	assert_int_equal(fake_next(&world.nodes[A].node.receives).error, 0);
	assert_bytes(in, sizeof(second), 2);
	close_endpoints();
}

/*
 * A single copy to itself that was offered or accepted before the endpoint leaves. Afterwards its words are
 * not in the region.
 */
static void test_a_copy_to_itself_survives(void **state)
{
	(void)state;
	for (int accepted = 0; accepted < 2; accepted++) {
		open_endpoints("1", "1", "");
		assert_int_equal(single_copy_open(world.nodes[A].node.messenger, SINGLE_COPY_ON), 0);
		talk_of_all(A, A);
		fill_bytes(out, LONG, 3);
		memset(in, 0, LONG);
		uint32_t source = meet(A, A)->peer.source;
		if (accepted)
			assert_int_equal(fake_receive(&world.nodes[A], source, in, LONG, 3), 0);
		assert_int_equal(fake_send(&world.nodes[A], meet(A, A), out, LONG, 3), 0);
		if (accepted) /* takes the offer, and has no answer yet */
			(void)messenger_progress(world.nodes[A].node.messenger);
		leave(A);
		if (!accepted)
			assert_int_equal(fake_receive(&world.nodes[A], source, in, LONG, 3), 0);
		settle();
		assert_int_equal(fake_next(&world.nodes[A].node.receives).error, 0);
		assert_int_equal(fake_next(&world.nodes[A].node.sends).error, 0);
		assert_bytes(in, LONG, 3);
		talk_of_all(A, A);
		talk_of_all(A, B);
		close_endpoints();
	}
}

/* An endpoint that sent itself no message before it left. */
static void test_who_meets_itself_afterwards(void **state)
{
	(void)state;
	open_endpoints("1", "1", "");
	assert_int_equal(single_copy_open(world.nodes[A].node.messenger, SINGLE_COPY_ON), 0);
	leave(A);
	talk_of_all(A, A);
	talk_of_all(A, B);
	close_endpoints();
}

static void test_another_region_is_joined(void **state)
{
	(void)state;
	open_endpoints("1", "1", "2");
	talk_of_all(A, B);
	talk_of_all(A, C);
	uint32_t numbers[] = {meet(A, B)->peer.source, meet(A, C)->peer.source, meet(C, A)->peer.source};
	leave(A);
	plug('2', '1');
	search_now(A);
	assert_false(has_left(A));
	assert_int_equal(attachment_of(A)->region->id[1], 2);
	assert_true(through_region(A, C));
	assert_true(through_region(C, A));
	assert_false(through_region(A, B));
	assert_int_equal(meet(A, B)->peer.source, numbers[0]);
	assert_int_equal(meet(A, C)->peer.source, numbers[1]);
	assert_int_equal(meet(C, A)->peer.source, numbers[2]);
	uint32_t frames = world.ends[A].frames;
	talk_of_all(A, C);
	assert_int_equal(world.ends[A].frames, frames);
	talk_of_all(A, B);
	talk_of_all(A, A);
	/* On to the third region, and back to the first, where B is. */
	leave(A);
	talk_of_all(A, C);
	plug('3', '1');
	search_now(A);
	assert_int_equal(attachment_of(A)->region->id[1], 3);
	talk_of_all(A, C);
	talk_of_all(A, B);
	close_endpoints();
}

/* Check that `pointer` does not point into memory of the region that is gone. */
static void assert_outside(const struct region *gone, const void *pointer)
{
	uintptr_t offset = (uintptr_t)pointer - (uintptr_t)gone->base;

	assert_true(offset >= gone->bytes);
}

/* The endpoint's old region is unmapped when it joins the next: none of its pointers may point there. */
static void test_nothing_is_kept_of_a_region_that_is_unmapped(void **state)
{
	(void)state;
	open_endpoints("1", "2", "2");
	talk_of_all(A, B);
	talk_of_all(A, C);
	leave(A);
	plug('2', '1');
	search_now(A);
	assert_true(through_region(A, B));
	talk_of_all(A, B);
	talk_of_all(A, C);
	/* One of its peers fails there. */
	transport_fail(transport_of(A), &meet(A, C)->peer, -ECONNRESET, "the test says so");
	settle();
	const struct region gone = *attachment_of(A)->region;
	leave(A);
	plug('3', '1');
	const struct transport *transport = transport_of(A);
	for (uint32_t source = 0; source < transport->peer_end; source++) {
		const struct peer *peer = transport->peers[source];
		if (peer == NULL)
			continue;
		assert_outside(&gone, peer->active_word);
		assert_outside(&gone, peer->doorbell);
		assert_outside(&gone, peer->sleeping_word);
		assert_outside(&gone, peer->claim);
		assert_outside(&gone, peer->section);
		assert_outside(&gone, peer->in.slots);
		assert_outside(&gone, peer->in.credit);
		assert_outside(&gone, peer->out.slots);
		assert_outside(&gone, peer->out.credit);
		assert_outside(&gone, peer->account.credit);
		assert_outside(&gone, peer->returns.credit);
	}
	uint32_t room = transport->hot_room;
	search_now(A);
	assert_int_equal(attachment_of(A)->region->id[1], 3);
	assert_int_equal(transport->hot_room, room);
	talk_of_all(A, B);
	talk_of_all(A, A);
	close_endpoints();
}

/* As when moving to another host failed: the endpoint stays away until the manager withdraws the request. */
static void test_the_same_region_again(void **state)
{
	(void)state;
	open_endpoints("1", "1", "1");
	talk_of_all(A, B);
	for (int round = 0; round < 3; round++) {
		leave(A);
		talk_of_all(A, B);
		talk_of_all(A, C);
		search_now(A);
		assert_true(has_left(A));
		request_route(A, ROUTE_RETURN);
		search_now(A);
		assert_false(has_left(A));
		assert_true(through_region(A, B));
		assert_true(through_region(B, A));
		assert_true(through_region(C, A));
		uint32_t frames = world.ends[A].frames;
		talk_of_all(A, B);
		talk_of_all(C, A);
		assert_int_equal(world.ends[A].frames, frames);
	}
	close_endpoints();
}

/* The manager withdraws the request after the peers have detached, and before A could leave. */
static void test_who_is_called_back_in_time(void **state)
{
	(void)state;
	open_endpoints("1", "1", "1");
	talk_of_all(A, B);
	talk_of_all(A, C);
	hold_still(A);
	request_route(A, ROUTE_LEAVE);
	/* C does not learn of it, because it makes no progress. */
	struct messenger *stopped = world.nodes[C].node.messenger;
	world.nodes[C].node.messenger = NULL;
	for (int round = 0; round < 20; round++) {
		transport_begin_switches(transport_of(A));
		transport_begin_switches(transport_of(B));
		fake_settle(&world);
	}
	world.nodes[C].node.messenger = stopped;
	assert_false(has_left(A));
	assert_null(meet(A, B)->peer.attachment);
	request_route(A, ROUTE_RETURN);
	settle();
	assert_true(through_region(A, B));
	assert_true(through_region(B, A));
	assert_true(through_region(A, C));
	talk_of_all(A, B);
	talk_of_all(A, C);
	close_endpoints();
}

/*
 * The same after A has announced that it detaches. B may have received that, and dropped its state of the
 * region.
 */
static void test_who_is_called_back_while_it_detaches(void **state)
{
	(void)state;
	for (int heard = 0; heard < 2; heard++) {
		open_endpoints("1", "1", "1");
		talk_of_all(A, B);
		hold_still(A);
		request_route(A, ROUTE_LEAVE);
		struct messenger *stopped = world.nodes[C].node.messenger;
		world.nodes[C].node.messenger = NULL;
		const struct peer *b = &meet(A, B)->peer;
		for (int round = 0; b->beyond == NULL || b->beyond->detach_said == DETACH_NONE; round++) {
			assert_true(round < 1000);
			for (int at = A; at <= B; at++) {
				if (at == B)
					transport_begin_switches(transport_of(B));
				(void)messenger_progress(world.nodes[at].node.messenger);
				(void)transport_progress_full(transport_of(at));
				if (at == B)
					transport_begin_switches(transport_of(A));
			}
		}
		/* On a slow machine B may have checked by its clock and answered: that must end well, too. */
		if (heard) {
			(void)network_progress_full(transport_of(B));
			transport_begin_switches(transport_of(B));
		}
		request_route(A, ROUTE_RETURN);
		transport_begin_switches(transport_of(A));
		world.nodes[C].node.messenger = stopped;
		settle();
		assert_int_equal(meet(B, A)->peer.state, PEER_PRESENT);
		assert_true(through_region(A, B));
		assert_true(through_region(B, A));
		talk_of_all(A, B);
		talk_of_all(A, C);
		close_endpoints();
	}
}

/* Both go to the host of C, one after the other. Between them there is a region again, too. */
static void test_all_meet_in_a_region_of_another(void **state)
{
	(void)state;
	open_endpoints("1", "1", "2");
	talk_of_all(A, B);
	talk_of_all(B, C);
	leave(A);
	plug('2', '1');
	search_now(A);
	talk_of_all(A, B);
	/* B still maps the file that has no name any more, and the manager's requests are written there. */
	const struct member *b = attachment_of(B)->member;
	transport_of(B)->attachments[0].next_search = UINT64_MAX;
	shared_store_u64(&region_slot(b->region, b->slot)->requested_route,
			 (uint64_t)b->epoch << 32 | ROUTE_LEAVE);
	settle();
	assert_true(has_left(B));
	search_now(B);
	assert_true(through_region(A, B));
	/* These two learn of each other only now. */
	talk_of_all(A, C);
	settle();
	for (int one = A; one <= C; one++)
		for (int other = A; other <= C; other++) {
			if (one != other)
				assert_true(through_region(one, other));
			talk_of_all(one, other);
		}
	close_endpoints();
}

/* Messages of every kind are in progress at every change. */
static void test_traffic_while_it_changes(void **state)
{
	static unsigned char bytes[4][LONG];
	static unsigned char got[4][LONG];
	static const size_t lengths[4] = {8, 3000, 60000, LONG};

	(void)state;
	open_endpoints("1", "1", "2");
	talk_of_all(A, B);
	talk_of_all(A, C);
	for (uint64_t round = 0; round < 12; round++) {
		for (uint64_t i = 0; i < 4; i++) {
			fill_bytes(bytes[i], lengths[i], round * 4 + i);
			memset(got[i], 0, lengths[i]);
			int other = i % 2 == 0 ? B : C;
			assert_int_equal(
				fake_send(&world.nodes[A], meet(A, other), bytes[i], lengths[i], 50 + i), 0);
			if (round % 2 == 0)
				fake_settle(&world);
		}
		switch (round % 4) {
		case 0:
			leave(A);
			break;
		case 1:
			plug(round % 8 == 1 ? '2' : '3', '1');
			search_now(A);
			assert_false(has_left(A));
			break;
		default:
			settle();
			break;
		}
		for (uint64_t i = 0; i < 4; i++) {
			int other = i % 2 == 0 ? B : C;
			assert_int_equal(fake_receive(&world.nodes[other], meet(other, A)->peer.source,
						      got[i], lengths[i], 50 + i),
					 0);
			settle();
			assert_int_equal(fake_next(&world.nodes[other].node.receives).error, 0);
			assert_int_equal(fake_next(&world.nodes[A].node.sends).error, 0);
			assert_bytes(got[i], lengths[i], round * 4 + i);
		}
	}
	close_endpoints();
}

/* An unplugged BAR reads as zeros, without a fault. The test puts zeros there, in A's mapping only. */
static void unplug(int index)
{
	const struct region *region = attachment_of(index)->region;

	assert_ptr_not_equal(mmap(region->base, region->bytes, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0),
			     MAP_FAILED);
}

static void test_a_device_that_is_unplugged_unasked(void **state)
{
	(void)state;
	open_endpoints("1", "1", "1");
	talk_of_all(A, B);
	/* It matters only for messages to the user that this is not a file. */
	struct region *region = attachment_of(A)->region;
	region->kind = REGION_PCI;
	assert_int_equal(fake_receive(&world.nodes[A], meet(A, B)->peer.source, in, 8, 1), 0);
	unplug(A);
	settle();
	struct completion entry = fake_next(&world.nodes[A].node.receives);
	assert_int_equal(entry.error, FI_ECONNABORTED);
	assert_string_equal(entry.reason, "the region's device was unplugged");
	close_endpoints();
}

/* A newcomer gets the slot that A left, while A lives on: neither is taken for the other. */
static void test_a_newcomer_in_its_slot(void **state)
{
	struct region *mapping = NULL;
	struct region_error error;
	struct member *newcomer = NULL;
	char name[96];

	(void)state;
	open_endpoints("1", "1", "1");
	talk_of_all(A, B);
	uint32_t slot = attachment_of(A)->member->slot;
	leave(A);
	(void)snprintf(name, sizeof(name), "file:%s", files[0]);
	assert_int_equal(region_attach(name, &mapping, &error), 0);
	/* Join until it is that slot. */
	struct member *others[MEMBERS] = {NULL};
	for (uint32_t i = 0; newcomer == NULL && i < MEMBERS; i++) {
		assert_int_equal(member_join(mapping, 0, WORLD_TIMEOUT, &others[i], &error), 0);
		if (others[i]->slot == slot)
			newcomer = others[i];
	}
	assert_non_null(newcomer);
	struct peer *before = &meet(B, A)->peer;
	struct transport *transport = transport_of(B);
	/* Without a network name it cannot be told apart, and is not met. */
	assert_null(transport_meet(transport, slot, newcomer->epoch, newcomer->nonce));
	const struct core_name *core = network_name(transport->network);
	struct member_core where = {.provider = core->provider, .length = core->length, .flags = core->flags};
	memcpy(where.name, core->bytes, core->length);
	where.name[0] ^= 0x55; /* another name */
	member_publish_core(newcomer, &where);
	struct peer *peer = transport_meet(transport, slot, newcomer->epoch, newcomer->nonce);
	assert_non_null(peer);
	assert_ptr_not_equal(peer, before);
	assert_true(peer->source >= transport->members);
	assert_ptr_equal(transport_peer_in(&transport->attachments[0], slot, newcomer->epoch), peer);
	assert_ptr_equal(transport_meet(transport, slot, newcomer->epoch, newcomer->nonce), peer);
	assert_ptr_equal(&meet(B, A)->peer, before);
	talk_of_all(A, B);
	for (uint32_t i = 0; i < MEMBERS; i++)
		if (others[i] != NULL)
			member_leave(others[i]);
	region_detach(mapping);
	close_endpoints();
}

/* C joins the region that A left. From A's address it learns that the network reaches A. */
static void test_who_comes_later(void **state)
{
	(void)state;
	for (int first = 0; first < 3; first++) {
		open_endpoints("1", "1", "");
		talk_of_all(A, B);
		struct address address = address_of(A);
		leave(A);
		open_endpoint(C, "1");
		if (first == 0) /* as if the address was inserted before */
			assert_null(
				transport_meet(transport_of(C), address.slot, address.epoch, address.nonce)
					->attachment);
		if (first == 1)
			talk(A, C, 8, 1);
		talk_of_all(C, A);
		talk_of_all(A, C);
		talk_of_all(B, C);
		assert_true(through_region(B, C));
		assert_int_equal(meet(C, A)->peer.source < transport_of(C)->members, first == 0);
		request_route(A, ROUTE_RETURN);
		search_now(A);
		for (int other = B; other <= C; other++) {
			assert_true(through_region(A, other));
			assert_true(through_region(other, A));
			talk_of_all(A, other);
		}
		close_endpoints();
	}
}

/* ---- members that lie ---- */

/* A frame from `from`, delivered to `to`. */
static void deliver(int to, int from, enum frame_kind kind, uint32_t sequence, uint32_t bytes,
		    const struct frame_region *location)
{
	unsigned char frame[sizeof(struct frame_header) + sizeof(*location)];
	struct frame_header header = {
		.magic = FRAME_MAGIC,
		.version = FRAME_VERSION,
		.kind = (uint8_t)kind,
		.to = transport_of(to)->attachments[0].member->nonce,
		.from = transport_of(from)->attachments[0].member->nonce,
		.sequence = sequence,
		.bytes = bytes,
	};

	memcpy(frame, &header, sizeof(header));
	if (location != NULL)
		memcpy(frame + sizeof(header), location, sizeof(*location));
	assert_true(fake_deliver(&world.ends[to], frame,
				 sizeof(header) + (location != NULL ? sizeof(*location) : 0)));
	fake_settle(&world);
}

static struct frame_region location_of(int index)
{
	const struct member *member = attachment_of(index)->member;

	return (struct frame_region){
		.region = {member->region->id[0], member->region->id[1]},
		.nonce = member->nonce,
		.slot = member->slot,
		.epoch = member->epoch,
	};
}

/*
 * C shares a region with B, and A claims to be there as well. The claim is not believed, and nothing else
 * happens.
 */
static void test_who_is_not_there_is_not_believed(void **state)
{
	(void)state;
	open_endpoints("1", "2", "2");
	talk_of_all(A, C);
	talk_of_all(B, C);
	struct frame_region location = location_of(A); /* another region's */
	deliver(C, A, FRAME_REGION, 0, 0, &location);
	location = location_of(B); /* another location, a wrong nonce, epoch or slot */
	location.nonce++;
	deliver(C, A, FRAME_REGION, 0, 0, &location);
	location = location_of(B);
	location.epoch++;
	deliver(C, A, FRAME_REGION, 0, 0, &location);
	location = location_of(B);
	for (uint32_t slot = 0; slot < 2 * MEMBERS; slot++) {
		location.slot = slot == location_of(B).slot ? UINT32_MAX : slot;
		deliver(C, A, FRAME_REGION, slot % 4, 0, &location);
	}
	location = location_of(B); /* that of a peer that was met there, and our own */
	deliver(C, A, FRAME_REGION, 0, 0, &location);
	location = location_of(C);
	deliver(C, A, FRAME_REGION, 0, 0, &location);
	deliver(C, A, FRAME_REGION, 0, 0, NULL); /* too short */
	assert_null(meet(C, A)->peer.attachment);
	assert_true(through_region(C, B));
	talk_of_all(A, C);
	talk_of_all(B, C);
	close_endpoints();
}

/* A peer beyond our regions has nothing to detach from. A DETACH for another time and location has no effect.
 */
static void test_a_detach_of_another_time_is_dropped(void **state)
{
	(void)state;
	open_endpoints("1", "1", "2");
	talk_of_all(A, B);
	talk_of_all(A, C);
	deliver(A, C, FRAME_DETACH, 1, 0, NULL);
	fake_request_route(&world.nodes[B], true);
	settle();
	deliver(A, B, FRAME_DETACH, 1, 12345, NULL);
	assert_non_null(meet(A, B)->peer.attachment);
	fake_request_route(&world.nodes[B], false);
	settle();
	assert_true(through_region(A, B));
	talk_of_all(A, B);
	talk_of_all(A, C);
	close_endpoints();
}

/* The peer announced that it sends nothing through the region, and sends. */
static void test_who_detaches_and_sends_loses_its_connection(void **state)
{
	(void)state;
	open_endpoints("1", "1", "1");
	talk_of_all(A, B);
	talk_of_all(A, C);
	fake_request_route(&world.nodes[B], true);
	for (int round = 0; round < 3; round++) {
		transport_begin_switches(transport_of(A));
		(void)network_progress_full(transport_of(A));
		(void)network_progress_full(transport_of(B));
	}
	assert_true(meet(A, B)->peer.receiving);
	deliver(A, B, FRAME_DETACH, 0,
		network_tenancy(attachment_of(A)->region, attachment_of(B)->member->epoch), NULL);
	assert_int_equal(meet(A, B)->peer.state, PEER_FAILED);
	assert_int_equal(meet(A, B)->peer.failure, -EPROTO);
	talk_of_all(A, C);
	close_endpoints();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_who_leaves_has_nothing_of_the_region),
		cmocka_unit_test(test_what_waits_stays),
		cmocka_unit_test(test_a_copy_to_itself_survives),
		cmocka_unit_test(test_who_meets_itself_afterwards),
		cmocka_unit_test(test_another_region_is_joined),
		cmocka_unit_test(test_nothing_is_kept_of_a_region_that_is_unmapped),
		cmocka_unit_test(test_the_same_region_again),
		cmocka_unit_test(test_who_is_called_back_in_time),
		cmocka_unit_test(test_who_is_called_back_while_it_detaches),
		cmocka_unit_test(test_all_meet_in_a_region_of_another),
		cmocka_unit_test(test_traffic_while_it_changes),
		cmocka_unit_test(test_a_device_that_is_unplugged_unasked),
		cmocka_unit_test(test_a_newcomer_in_its_slot),
		cmocka_unit_test(test_who_comes_later),
		cmocka_unit_test(test_who_is_not_there_is_not_believed),
		cmocka_unit_test(test_a_detach_of_another_time_is_dropped),
		cmocka_unit_test(test_who_detaches_and_sends_loses_its_connection),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
