/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_core.c - see fake_core.h. */
#include "fake_core.h"

static void open_node(struct fake_world *world, uint8_t index, struct region *region)
{
	struct far_node *far = &world->nodes[index];

	fake_end_open(world->ends, index);
	far->end = &world->ends[index];
	far->region = region;
	node_open(&far->node, region);
	assert_int_equal(network_open(far->node.messenger->transport, &far->end->core, &far->directory), 0);
}

void fake_open_node(struct fake_world *world, uint8_t index)
{
	struct region_error error;
	struct region *region = NULL;

	assert_int_equal(region_attach(REGION_PRIVATE, &region, &error), 0);
	open_node(world, index, region);
	network_listen(world->nodes[index].node.messenger->transport);
}

void fake_open(struct fake_world *world)
{
	memset(world, 0, sizeof(*world));
	for (uint8_t i = 0; i < FAKE_ENDS; i++)
		fake_open_node(world, i);
}

void fake_open_shared(struct fake_world *world, uint64_t heap_bytes)
{
	struct region *region =
		world_region_with_heaps(FAKE_MEMBERS, WORLD_SECTION_BYTES + heap_bytes, heap_bytes);

	memset(world, 0, sizeof(*world));
	for (uint8_t i = 0; i < FAKE_ENDS; i++) {
		if (i > 0)
			region_hold(region);
		open_node(world, i, region);
	}
}

void fake_open_in(struct fake_world *world, struct region *const regions[FAKE_ENDS])
{
	memset(world, 0, sizeof(*world));
	for (uint8_t i = 0; i < FAKE_ENDS; i++)
		open_node(world, i, regions[i]);
}

void fake_close(struct fake_world *world)
{
	for (uint32_t i = 0; i < FAKE_ENDS; i++) {
		struct far_node *far = &world->nodes[i];
		if (far->region == NULL)
			continue;
		const struct transport *transport =
			far->node.messenger != NULL ? far->node.messenger->transport : NULL;
		/* The other nodes make no progress meanwhile: do not wait for them. */
		for (uint32_t slot = 0; transport != NULL && slot < transport->peer_end; slot++) {
			struct peer *peer = transport->peers[slot];
			if (peer != NULL && peer->beyond != NULL)
				peer->beyond->left = true;
		}
		far->end->refusals = 0;
		node_close(&far->node);
		assert_true(far->end->closed);
		assert_int_equal(far->end->registered, 0);
		directory_close(&far->directory);
		region_detach(far->region);
	}
}

struct msg_peer *fake_peer(struct far_node *from, const struct far_node *to)
{
	uint32_t index =
		directory_add(&from->directory, to->node.messenger->transport->attachments[0].member->nonce,
			      &to->end->core.name);

	assert_int_not_equal(index, DIRECTORY_NONE);
	struct peer *peer = network_meet(from->node.messenger->transport, from->region->members + index);
	assert_non_null(peer);
	return (struct msg_peer *)(void *)peer;
}

struct msg_peer *fake_neighbour(const struct far_node *at, const struct far_node *whom)
{
	const struct member *member = fake_transport(whom)->attachments[0].member;
	struct transport *transport = fake_transport(at);
	struct peer *peer = transport_meet(transport, member->slot, member->epoch, member->nonce);

	if (peer == NULL)
		peer = transport->peers[member->slot];
	assert_non_null(peer);
	return (struct msg_peer *)(void *)peer;
}

struct transport *fake_transport(const struct far_node *far)
{
	return far->node.messenger->transport;
}

void fake_settle(struct fake_world *world)
{
	for (uint32_t quiet = 0; quiet < 200;) {
		uint32_t moved = 0;
		for (uint32_t i = 0; i < FAKE_ENDS; i++) {
			struct messenger *messenger = world->nodes[i].node.messenger;
			if (messenger != NULL)
				moved += messenger_progress(messenger) +
					 transport_progress_full(messenger->transport);
		}
		quiet = moved == 0 ? quiet + 1 : 0;
	}
}

ssize_t fake_send(struct far_node *from, struct msg_peer *to, const void *bytes, size_t length, uint64_t tag)
{
	struct iovec piece = {(void *)(uintptr_t)bytes, length};

	return messenger_send(from->node.messenger, &(struct send_request){
							    .pieces = &piece,
							    .count = 1,
							    .length = length,
							    .to = to,
							    .tag = tag,
							    .flags = FI_TAGGED | FI_COMPLETION,
						    });
}

ssize_t fake_receive(struct far_node *at, uint32_t source, void *bytes, size_t length, uint64_t tag)
{
	struct iovec piece = {bytes, length};

	return messenger_receive(at->node.messenger, &(struct receive_request){
							     .pieces = &piece,
							     .count = 1,
							     .source = source,
							     .tag = tag,
							     .flags = FI_TAGGED | FI_COMPLETION,
						     });
}

struct completion fake_next(struct completion_queue *queue)
{
	assert_false(completion_is_empty(queue));
	return queue->entries[queue->head++ & queue->mask];
}

void fake_talk(struct fake_world *world, struct far_node *from, struct msg_peer *to,
	       struct far_node *receiver, uint32_t source, size_t length, uint64_t seed)
{
	static unsigned char in[FAKE_TALK_MAX];
	static unsigned char out[FAKE_TALK_MAX];

	assert_true(length <= FAKE_TALK_MAX);
	memset(in, 0, length);
	fill_bytes(out, length, seed);
	assert_int_equal(fake_receive(receiver, source, in, length, seed), 0);
	assert_int_equal(fake_send(from, to, out, length, seed), 0);
	fake_settle(world);
	assert_int_equal(fake_next(&from->node.sends).error, 0);
	struct completion got = fake_next(&receiver->node.receives);
	assert_int_equal(got.error, 0);
	assert_int_equal(got.length, length);
	assert_int_equal((uint32_t)got.source, source);
	assert_bytes(in, length, seed);
}

void fake_request_route(const struct far_node *whom, bool network)
{
	const struct member *member = fake_transport(whom)->attachments[0].member;

	shared_store_u64(&region_slot(whom->region, member->slot)->requested_route,
			 network ? (uint64_t)member->epoch << 32 | 1 : 0);
}

struct fake_world fakes;

int fake_setup(void **state)
{
	(void)state;
	fake_open_shared(&fakes, 0);
	return 0;
}

int fake_teardown(void **state)
{
	(void)state;
	fake_close(&fakes);
	return 0;
}
