/* SPDX-License-Identifier: BSD-3-Clause */
/* world.c - see world.h. */
#include "world.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * The number of rounds without progress after which every periodic part of transport_progress_slow() has run,
 * except the liveness check.
 */
#define QUIET_ROUNDS 256U

/*
 * The kernel takes milliseconds for the memory of a region, and some tests open a thousand worlds. So the
 * region of the last world is kept for the next world. Its tables are cleared, and its arenas stay as former
 * occupants left them.
 */
static struct region *kept;

static bool recycle(uint32_t members, uint64_t section_bytes)
{
	if (kept == NULL || kept->members != members || kept->section_bytes != section_bytes)
		return false;
	memset(kept->base, 0, kept->sections_offset);
	for (uint32_t slot = 0; slot < members; slot++)
		memset(region_section(kept, slot), 0, SECTION_ARENA_OFFSET(members));
	return true;
}

static struct region *allocate(size_t bytes)
{
	struct region *region = calloc(1, sizeof(*region));

	assert_non_null(region);
	region->kind = REGION_FILE;
	region->bytes = bytes;
	region->fd = memfd_create("vicinal-test", MFD_CLOEXEC);
	assert_true(region->fd >= 0);
	assert_int_equal(posix_fallocate(region->fd, 0, (off_t)bytes), 0);
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd, 0);
	assert_ptr_not_equal(base, MAP_FAILED);
	region->base = base;
	return region;
}

struct region *world_region_with_heaps(uint32_t members, uint64_t section_bytes, uint64_t heap_bytes)
{
	const uint64_t id[2] = {UINT64_C(0x0123456789abcdef), UINT64_C(0xfedcba9876543210)};
	bool recycled = recycle(members, section_bytes);
	struct region *region = recycled ? kept : allocate(region_size(members, section_bytes));
	struct region_error error;

	if (recycled)
		kept = NULL;
	assert_int_equal(
		region_format_heaps(region->base, region->bytes, members, section_bytes, heap_bytes, id), 0);
	assert_int_equal(region_check_header((const void *)region->base, region->bytes, region, &error), 0);
	return region;
}

struct region *world_region(uint32_t members, uint64_t section_bytes)
{
	return world_region_with_heaps(members, section_bytes, 0);
}

void world_region_close(struct region *region)
{
	region_detach(kept);
	kept = region;
}

void node_open(struct node *node, struct region *region)
{
	struct region_error error;

	*node = (struct node){0};
	int result = messenger_open(&node->messenger, region, 0, WORLD_TIMEOUT, &error);
	if (result != 0)
		fail_msg("%s", error.text);
	assert_int_equal(completion_open(&node->sends, 1), 0);
	assert_int_equal(completion_open(&node->receives, 1), 0);
	/* Most tests are about sends that find room; test_send_queue.c is about sends that do not. */
	node->messenger->send_queues.most = 0;
	node->messenger->send_completions = &node->sends;
	node->messenger->receive_completions = &node->receives;
	node->messenger->send_counter = &node->sent;
	node->messenger->receive_counter = &node->received;
}

void node_close(struct node *node)
{
	if (node->messenger == NULL)
		return;
	messenger_close(node->messenger);
	completion_close(&node->sends);
	completion_close(&node->receives);
	node->messenger = NULL;
}

void node_die(struct node *node)
{
	/*
	 * The member now seems to belong to another process, as in a forked child: it closes without telling
	 * its peers.
	 */
	node->messenger->transport->attachments[0].member->process = 0;
	node_close(node);
}

void world_open(struct world *world, uint32_t count, uint32_t members, uint64_t section_bytes)
{
	assert_true(count <= WORLD_NODES);
	*world = (struct world){.count = count, .region = world_region(members, section_bytes)};
	for (uint32_t i = 0; i < count; i++)
		node_open(&world->nodes[i], world->region);
}

void world_close(struct world *world)
{
	world_settle(world);
	for (uint32_t i = 0; i < world->count; i++)
		node_close(&world->nodes[i]);
	world_region_close(world->region);
}

static uint32_t step(struct world *world)
{
	uint32_t handled = 0;

	for (uint32_t i = 0; i < world->count; i++)
		if (world->nodes[i].messenger != NULL)
			handled += messenger_progress(world->nodes[i].messenger);
	return handled;
}

void world_step(struct world *world)
{
	(void)step(world);
}

void world_settle(struct world *world)
{
	uint32_t quiet = 0;

	for (uint32_t round = 0; quiet < QUIET_ROUNDS; round++) {
		quiet = step(world) == 0 ? quiet + 1 : 0;
		assert_true(round < WORLD_PATIENCE);
	}
}

struct completion world_await(struct world *world, struct completion_queue *queue)
{
	for (uint32_t round = 0; completion_is_empty(queue); round++) {
		if (round == WORLD_PATIENCE)
			fail_msg("nothing completes");
		world_step(world);
	}
	struct completion entry = *completion_first(queue);
	queue->head++;
	return entry;
}

struct completion world_await_good(struct world *world, struct completion_queue *queue)
{
	struct completion entry = world_await(world, queue);

	if (entry.error != 0)
		fail_msg("completed with error %d: %s", entry.error, entry.reason);
	return entry;
}

void world_check_peers(struct world *world)
{
	/* Twice, because messages of a dead peer are read first. */
	for (int round = 0; round < 2; round++) {
		world_settle(world);
		for (uint32_t i = 0; i < world->count; i++)
			if (world->nodes[i].messenger != NULL)
				transport_check_peers(world->nodes[i].messenger->transport);
	}
	world_settle(world);
}

uint32_t node_slot(const struct node *node)
{
	return node->messenger->transport->attachments[0].member->slot;
}

struct msg_peer *world_peer(const struct node *from, const struct node *to)
{
	const struct member *member = to->messenger->transport->attachments[0].member;
	struct peer *peer =
		transport_meet(from->messenger->transport, member->slot, member->epoch, member->nonce);

	assert_non_null(peer);
	return (struct msg_peer *)(void *)peer;
}

ssize_t node_send(struct node *from, const struct node *to, const void *bytes, size_t length, uint64_t tag,
		  uint64_t flags, void *context)
{
	const struct iovec piece = {(void *)(uintptr_t)bytes, length};

	return messenger_send(from->messenger, &(struct send_request){
						       .pieces = &piece,
						       .count = 1,
						       .length = length,
						       .to = world_peer(from, to),
						       .tag = tag,
						       .data = ~tag,
						       .context = context,
						       .flags = flags | FI_COMPLETION,
					       });
}

ssize_t node_receive(struct node *at, const struct node *from, void *bytes, size_t length, uint64_t tag,
		     uint64_t flags, void *context)
{
	const struct iovec piece = {bytes, length};

	return messenger_receive(at->messenger,
				 &(struct receive_request){
					 .pieces = &piece,
					 .count = 1,
					 .source = from == NULL ? MATCH_ANY_SOURCE
								: world_peer(at, from)->peer.source,
					 .tag = tag,
					 .ignore = flags & FI_TAGGED ? 0 : UINT64_MAX,
					 .context = context,
					 .flags = flags | FI_COMPLETION,
				 });
}

void fill_bytes(unsigned char *bytes, size_t length, uint64_t seed)
{
	for (size_t i = 0; i < length; i++)
		bytes[i] = (unsigned char)(i % 251 + i / 251 * 7 + seed * 31);
}

void assert_bytes(const unsigned char *bytes, size_t length, uint64_t seed)
{
	for (size_t i = 0; i < length; i++)
		if (bytes[i] != (unsigned char)(i % 251 + i / 251 * 7 + seed * 31))
			fail_msg("byte %zu of %zu is %u", i, length, bytes[i]);
}
