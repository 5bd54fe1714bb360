/* SPDX-License-Identifier: BSD-3-Clause */
/* side.c - see side.h. */
#include "side.h"

#include <sched.h>
#include <sys/wait.h>

/* If a process waits longer for its peer, it takes the peer for hanging. */
#define PATIENCE UINT64_C(60000000000)

void side_progress(struct side *side)
{
	if (messenger_progress(side->node.messenger) == 0) {
		CHECK(monotonic_now() < side->until);
		(void)sched_yield();
	}
}

void join(struct side *side, struct region *region, uint32_t slot)
{
	uint32_t epoch = 0;
	uint64_t nonce = 0;

	side->until = monotonic_now() + PATIENCE;
	while (slot == 1 && !member_identify(region, 0, &epoch, &nonce))
		(void)sched_yield();
	node_open(&side->node, region);
	CHECK(node_slot(&side->node) == slot);
	CHECK(single_copy_open(side->node.messenger, SINGLE_COPY_ON) == 0);
	side->heap = side->node.messenger->transport->heap->base;
	while (!member_identify(region, !slot, &epoch, &nonce))
		side_progress(side);
	side->other = (struct msg_peer *)(void *)transport_meet(side->node.messenger->transport, !slot, epoch,
								nonce);
	CHECK(side->other != NULL);
}

void post(struct side *side, unsigned char *bytes, size_t length, uint64_t tag)
{
	const struct iovec piece = {bytes, length};

	CHECK(messenger_receive(side->node.messenger,
				&(struct receive_request){.pieces = &piece,
							  .count = 1,
							  .source = side->other->peer.source,
							  .tag = tag,
							  .context = bytes,
							  .flags = FI_TAGGED | FI_COMPLETION}) == 0);
}

int start_send(struct side *side, unsigned char *bytes, size_t length, uint64_t tag)
{
	const struct iovec piece = {bytes, length};
	ssize_t result = 0;

	while ((result = messenger_send(side->node.messenger,
					&(struct send_request){.pieces = &piece,
							       .count = 1,
							       .length = length,
							       .to = side->other,
							       .tag = tag,
							       .context = bytes,
							       .flags = FI_TAGGED | FI_COMPLETION})) ==
	       -EAGAIN)
		side_progress(side);
	return (int)-result;
}

struct completion await(struct side *side, struct completion_queue *queue)
{
	while (completion_is_empty(queue))
		side_progress(side);
	struct completion entry = *completion_first(queue);
	queue->head++;
	return entry;
}

static uint64_t word_at(uint64_t key, size_t index)
{
	return (index + 1) * UINT64_C(0x9e3779b97f4a7c15) + key;
}

void fill(unsigned char *bytes, size_t length, uint64_t key)
{
	for (size_t i = 0; i < length / 8; i++)
		memcpy(bytes + 8 * i, &(uint64_t){word_at(key, i)}, 8);
	for (size_t i = length / 8 * 8; i < length; i++)
		bytes[i] = (unsigned char)key;
}

bool has(const unsigned char *bytes, size_t length, uint64_t key)
{
	uint64_t word = 0;

	for (size_t i = 0; i < length / 8; i++) {
		memcpy(&word, bytes + 8 * i, 8);
		if (word != word_at(key, i))
			return false;
	}
	for (size_t i = length / 8 * 8; i < length; i++)
		if (bytes[i] != (unsigned char)key)
			return false;
	return true;
}

void assert_ended_well(pid_t child)
{
	int status = 0;

	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}
