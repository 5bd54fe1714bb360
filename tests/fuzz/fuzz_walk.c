/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_walk.c - three endpoints in one to three regions and a network. They exchange messages while
 * everything changes: the manager makes them leave regions, come back, and switch to the network; regions are
 * exchanged; endpoints die and have successors; frames are lost and forged; slots are taken.
 *
 * The input chooses the regions of the endpoints, the kinds of fault, and then the steps. walk_messages.c
 * checks the messages after each step, and poll_once() checks the work of each poll. In the end every message
 * between endpoints without a fault must arrive, and every operation must complete once all peers are given
 * up. The walk has its own time, which passes with rounds, so no result depends on the machine.
 */
#include "fuzz/walk.h"

#include "fuzz/work.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "proto/single_copy.h"
#include "region/route.h"
#include "transport/region_transport.h"
#include "transport/switch.h"

#define STEPS_MAX 160U
#define ROUND_NANOSECONDS 1000000U
#define SETTLING_NANOSECONDS 60000000U
/*
 * After this many rounds without a completion, none is expected any more. They are six seconds of the walk's
 * time, twice the slowest retry.
 */
#define QUIET_ROUNDS 100U
/*
 * The receives of a message are doubled every 8 passes, because messages after a fault may take them: 2040 in
 * 64 passes, as many as there are operations.
 */
#define PASSES_MAX 64U
#define PASSES_DOUBLED 8U

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

void find_fault(const char *what)
{
	(void)fprintf(stderr, "fuzz_walk: %s\n", what);
	abort();
}

void require_bounded(uint64_t before, uint64_t most, const char *what)
{
	require(work_copied() - before <= most, what);
}

bool is_alive(uint8_t index)
{
	return world.nodes[index].node.messenger != NULL;
}

/* ---- time and randomness, on which a run must not depend ---- */

static uint64_t now; /* nanoseconds; 0: the machine's */
static uint64_t randomness = 1;

/* The linker prescribes these names. */
/* NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

int __real_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
	if (clock != CLOCK_MONOTONIC || now == 0)
		return __real_clock_gettime(clock, time);
	now += 100;
	*time = (struct timespec){(time_t)(now / 1000000000U), (long)(now % 1000000000U)};
	return 0;
}

int __real_nanosleep(const struct timespec *time, struct timespec *rest);
int __wrap_nanosleep(const struct timespec *time, struct timespec *rest);
int __wrap_nanosleep(const struct timespec *time, struct timespec *rest)
{
	if (now == 0)
		return __real_nanosleep(time, rest);
	now += (uint64_t)time->tv_sec * 1000000000U + (uint64_t)time->tv_nsec;
	return 0;
}

ssize_t __wrap_getrandom(void *to, size_t length, unsigned int flags);
ssize_t __wrap_getrandom(void *to, size_t length, unsigned int flags)
{
	(void)flags;
	for (size_t i = 0; i < length; i++)
		((unsigned char *)to)[i] = (unsigned char)(next_random(&randomness) >> 32);
	return (ssize_t)length;
}

/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

/* ---- progress ---- */

static void poll_once(struct walk *walk, uint8_t at)
{
	uint64_t before = work_copied();
	uint32_t handled = messenger_progress(world.nodes[at].node.messenger);

	require(handled <= POLL_HANDLED_MAX, "a poll does more than its share");
	require_bounded(before, POLL_BYTES_MAX, "a poll copies more than its share");
	before = work_copied();
	handled = transport_progress_full(transport_of(at));
	require(handled <= POLL_HANDLED_MAX, "a full poll does more than its share");
	require_bounded(before, POLL_BYTES_MAX, "a full poll copies more than its share");
	take_completions(walk, at);
}

static void go_round(struct walk *walk, uint32_t rounds, uint64_t nanoseconds)
{
	for (; rounds > 0; rounds--) {
		for (uint8_t i = 0; i < FAKE_ENDS; i++)
			if (is_alive(i))
				poll_once(walk, i);
		now += nanoseconds;
	}
}

static void look_at_peers(void)
{
	for (uint8_t i = 0; i < FAKE_ENDS; i++)
		if (is_alive(i)) {
			transport_check_peers(transport_of(i));
			transport_begin_switches(transport_of(i));
		}
}

static uint32_t completed(const struct walk *walk)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < walk->count; i++)
		count += walk->operations[i].state == OPERATION_DONE;
	return count;
}

/* Run rounds until nothing completes any more. */
static void settle(struct walk *walk)
{
	uint32_t before = completed(walk);

	for (uint32_t quiet = 0; quiet < QUIET_ROUNDS; quiet++) {
		if (quiet % 4 == 0)
			look_at_peers();
		go_round(walk, 1, SETTLING_NANOSECONDS);
		if (completed(walk) != before)
			quiet = 0;
		before = completed(walk);
	}
}

/* ---- steps ---- */

/*
 * Write the manager's request through a mapping of the manager's, because the endpoint's mapping may be
 * private memory by now.
 */
static void walk_request_route(struct walk *walk)
{
	uint8_t at = take_u8(&walk->input) % FAKE_ENDS;
	uint8_t style = take_u8(&walk->input);
	struct region *region = NULL;
	struct region_error error;

	if (!is_alive(at))
		return;
	const struct attachment *attachment =
		&transport_of(at)->attachments[style / 4 % transport_of(at)->attachment_count];
	if (region_attach(attachment->region->name, &region, &error) != 0)
		return;
	/* No manager writes ROUTE_REGION: it would call back an endpoint to a region that it has left. */
	if (region->id[1] == attachment->region->id[1])
		shared_store_u64(&region_slot(region, attachment->member->slot)->requested_route,
				 (uint64_t)attachment->member->epoch << 32 |
					 ((style & 3) != 0 ? style & 3U : ROUTE_RETURN));
	region_detach(region);
}

/* Another region is plugged instead of one. */
static void walk_plug(struct walk *walk)
{
	uint8_t style = take_u8(&walk->input);
	const char *which = files[style % REGIONS];
	const char *where = files[style / 4 % REGIONS];

	if (which == where)
		return;
	require(unlink(where) == 0 && link(which, where) == 0, "a region cannot be plugged");
	walk->plugged = true;
}

static void walk_core(struct walk *walk)
{
	uint8_t at = take_u8(&walk->input) % FAKE_ENDS;
	uint8_t style = take_u8(&walk->input);
	struct fake_end *end = &world.ends[at];

	if (!is_alive(at))
		return;
	end->refusals = style & 1 ? style >> 4 : 0;
	end->exposes_nothing = style & 2;
	if (style & 4)
		end->holds_reads = true;
	else
		fake_release(end);
	if (style & 8)
		end->holds_sends = true;
	else
		fake_release_sends(end);
}

static void step(struct walk *walk)
{
	uint8_t what = take_u8(&walk->input);

	switch (what % 24) {
	case 0:
	case 1:
	case 2:
	case 3:
	case 4:
		walk_send(walk);
		break;
	case 5:
	case 6:
	case 7:
		walk_receive(walk);
		break;
	case 8:
		if (walk->allowed & WALK_BURSTS)
			walk_burst(walk);
		else
			walk_receive(walk);
		break;
	case 9:
	case 10:
		walk_request_route(walk);
		break;
	case 11:
	case 12:
		look_at_peers();
		break;
	case 13:
		walk_plug(walk);
		break;
	case 14:
	case 15:
		walk_frame(walk);
		break;
	case 16:
		walk_core(walk);
		break;
	case 17:
		walk_loss(walk);
		break;
	case 18:
		walk_death(walk);
		break;
	case 19:
		walk_eviction(walk);
		break;
	case 20:
		walk_cancel(walk);
		break;
	case 21: /* a second, in which endpoints search for regions */
		go_round(walk, 4, 300000000);
		break;
	default:
		go_round(walk, 1U + what / 24U * 2U, ROUND_NANOSECONDS);
		break;
	}
	go_round(walk, 1, ROUND_NANOSECONDS);
}

/* ---- a run ---- */

static void begin(struct walk *walk)
{
	static const char *const lists[] = {"1", "1", "2", "12", "21", "123", "3", "1"};
	uint8_t choice = take_u8(&walk->input);
	uint8_t style = take_u8(&walk->input);

	now = 1000000000;
	randomness = 20260101;
	walk->allowed = take_u8(&walk->input) & 31;
	heap_bytes = style & 1 ? (uint64_t)256 * 4096 : 0;
	open_endpoints(lists[choice & 7], lists[choice >> 3 & 7], "");
	open_endpoint(2, lists[choice >> 6 | (style & 128) >> 5]);
	for (uint8_t i = 0; i < FAKE_ENDS; i++) {
		walk->addresses[i] = address_of(i);
		walk->names[i] = *network_name(transport_of(i)->network);
		if (style & 2 << i)
			(void)single_copy_open(world.nodes[i].node.messenger, SINGLE_COPY_AUTO);
		if (style & 16 << i)
			world.nodes[i].node.messenger->send_queues.most = 1U << 20;
	}
}

static bool is_clean(const struct walk *walk, const struct operation *sent)
{
	return sent->send && is_alive(sent->other) && is_alive(sent->at) &&
	       trust_of(walk, sent, sent->other) == TRUST_CLEAN;
}

/* Receive all messages without a fault. Their sends complete. */
static void receive_all(struct walk *walk)
{
	uint32_t missing = 1;

	for (uint32_t pass = 0; missing > 0; pass++) {
		require(pass < PASSES_MAX, "a message never arrives");
		missing = 0;
		for (uint32_t i = 0, sent = walk->count; i < sent; i++) {
			if (!is_clean(walk, &walk->operations[i]) || walk->operations[i].delivered)
				continue;
			missing++;
			for (uint32_t more = 1U << pass / PASSES_DOUBLED; more > 0; more--) {
				if (walk->count == WALK_OPERATIONS)
					return;
				receive_message(walk, &walk->operations[i]);
			}
		}
		settle(walk);
	}
	for (uint32_t i = 0; i < walk->count; i++)
		require(!is_clean(walk, &walk->operations[i]) || walk->operations[i].state == OPERATION_DONE,
			"a send of a message that arrived does not complete");
}

static void give_up_all(struct walk *walk)
{
	walk->ending = true;
	for (uint8_t at = 0; at < FAKE_ENDS; at++) {
		if (!is_alive(at))
			continue;
		struct transport *transport = transport_of(at);
		for (uint32_t source = 0; source < transport->peer_end; source++)
			if (transport->peers[source] != NULL && transport->peers[source]->source == source)
				transport_fail(transport, transport->peers[source], -ECONNRESET,
					       "the run ends");
	}
	settle(walk);
	for (uint32_t i = 0; i < walk->count; i++) {
		const struct operation *operation = &walk->operations[i];
		if (operation->state == OPERATION_ACTIVE && !operation->send)
			(void)messenger_cancel(world.nodes[operation->at].node.messenger,
					       &walk->operations[i]);
	}
	go_round(walk, 2, ROUND_NANOSECONDS);
	require(completed(walk) == walk->count, "an operation never completes");
}

static void end(struct walk *walk)
{
	for (uint8_t i = 0; i < FAKE_ENDS; i++) {
		if (!is_alive(i))
			continue;
		world.ends[i].refusals = 0;
		world.ends[i].sinks = false;
		world.ends[i].exposes_nothing = false;
		fake_release(&world.ends[i]);
		fake_release_sends(&world.ends[i]);
	}
	receive_claimed(walk);
	receive_all(walk);
	give_up_all(walk);
	for (uint32_t i = 0; i < walk->count; i++)
		if (walk->operations[i].buffer != NULL)
			release_operation(&walk->operations[i]);
	close_endpoints();
	now = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct walk walk;

	memset(&walk, 0, sizeof(walk));
	walk.input = (struct fuzz_input){data, size};
	begin(&walk);
	uint32_t most = walk.allowed & WALK_BURSTS ? WALK_OPERATIONS_MANY : WALK_OPERATIONS_FEW;
	for (uint32_t steps = 0; walk.input.size > 0 && steps < STEPS_MAX && walk.count < most; steps++)
		step(&walk);
	end(&walk);
	return 0;
}
