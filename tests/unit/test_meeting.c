/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The two ends of a single copy, interleaved at each access to memory that the other end may access. Both
 * ends are the provider's own code: its files are compiled here with those accesses replaced by accesses at
 * which the other end may run. A store stays invisible to the other end until the next store or fence, as in
 * a processor. A copy is made in two parts. The kernel's reads of a line return its words in parts.
 *
 * The tests try all schedules with one or two changes of the running end in the middle of a poll, and random
 * schedules with many.
 */
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

/* All headers whose accesses must not be replaced. */
#include "proto/buffer.h"
#include "region/process.h"
#include "transport/transport.h"

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

/* ---- the two ends, as coroutines ---- */

#define STACK_BYTES (256U * 1024U)

struct end {
	ucontext_t context;
	void *fiber;
	_Atomic uint64_t *stored; /* not yet visible to the other end */
	uint64_t value;
	bool ended;
};

static struct end ends[2];  /* the sender, the receiver */
static struct end *current; /* NULL: nothing is interleaved */
static ucontext_t origin;
static void *origin_fiber;

/* The points at which the running end changes next. If `seed` is not 0, it changes at one point in eight. */
static uint32_t points;
static uint32_t changes[2];
static uint64_t seed;
static bool eager; /* stores are visible at once */
static char broken[200];
static char name[100];

/* The applications' buffers, and whether the provider owns them now. */
#define LENGTH 70000U
static unsigned char *source_bytes;
static unsigned char *target_bytes;
static bool sending;
static bool receiving;

#define BREAK(...) \
	do { \
		if (broken[0] == '\0') \
			(void)snprintf(broken, sizeof(broken), __VA_ARGS__); \
	} while (0)

static uint64_t draw(uint64_t limit)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (seed >> 11) % limit;
}

static void go_to(ucontext_t *from, ucontext_t *to, void *fiber)
{
#ifdef __SANITIZE_THREAD__
	__tsan_switch_to_fiber(fiber, 0);
#else
	(void)fiber;
#endif
	(void)swapcontext(from, to);
}

static void change(void)
{
	struct end *from = current;
	struct end *to = from == &ends[0] ? &ends[1] : &ends[0];

	if (to->ended)
		return;
	current = to;
	go_to(&from->context, &to->context, to->fiber);
}

static void point(void)
{
	if (current == NULL)
		return;
	points++;
	if (seed != 0 ? draw(8) == 0 : points == changes[0] || points == changes[1])
		change();
}

static void flush(void)
{
	if (current == NULL || current->stored == NULL)
		return;
	atomic_store(current->stored, current->value);
	current->stored = NULL;
}

static void store(_Atomic uint64_t *word, uint64_t value)
{
	if (current == NULL) {
		atomic_store(word, value);
		return;
	}
	point();
	flush();
	current->stored = word;
	current->value = value;
	if (eager || (seed != 0 && draw(2) == 0))
		flush();
	point();
}

static void fence(void)
{
	point();
	flush();
	point();
}

/* ---- accesses, as the provider's files see them ---- */

static uint64_t acquire(const shared_u64 *word)
{
	point();
	return atomic_load(&word->hidden);
}

static bool is_in(const unsigned char *buffer, const void *address)
{
	return (uintptr_t)address - (uintptr_t)buffer < LENGTH;
}

static void check_target(const void *address)
{
	if (!receiving && is_in(target_bytes, address))
		BREAK("the sender writes into a buffer that is the application's again");
}

static void check_source(const void *address)
{
	if (!sending && is_in(source_bytes, address))
		BREAK("the receiver reads from a buffer that is the application's again");
}

static void write_out(const struct buffer *buffer, size_t offset, shared_bytes *target, size_t length)
{
	size_t half = length / 2;

	point();
	check_target(target);
	buffer_to_region(buffer, offset, target, half);
	point();
	check_target(target);
	buffer_to_region(buffer, offset + half, target + half, length - half);
	point();
}

static void write_in_one(shared_bytes *target, const void *source, size_t length)
{
	const struct buffer buffer = {1, length, {{(void *)(uintptr_t)source, length}}};

	write_out(&buffer, 0, target, length);
}

static void read_in(void *target, const shared_bytes *source, size_t length)
{
	size_t half = length / 2;

	point();
	check_source(source);
	copy_linewise_in(target, source, half);
	point();
	check_source(source);
	copy_linewise_in((char *)target + half, source + half, length - half);
	point();
}

/* What the kernel would do. Buffers have one piece here. */
static void kernel_copy(const struct iovec *target, const struct iovec *source)
{
	size_t half = target->iov_len / 2;

	point();
	check_target(target->iov_base);
	check_source(source->iov_base);
	memcpy(target->iov_base, source->iov_base, half);
	point();
	check_target(target->iov_base);
	check_source(source->iov_base);
	memcpy((char *)target->iov_base + half, (const char *)source->iov_base + half,
	       target->iov_len - half);
	point();
}

static void kernel_snapshot(const struct process_peer *peer, uint32_t index, struct process_snapshot *look)
{
	const struct process_record *record = (const struct process_record *)(uintptr_t)peer->record;
	const struct process_line *line = &record->transfers[index].line;
	const _Atomic uint64_t *words[] = {&line->secret, &line->id, &line->claimed, &line->done};
	uint64_t values[4];

	for (int i = 0; i < 4; i++) {
		point();
		values[i] = atomic_load(words[i]) & 0xffff;
		if (i >= 2)
			point();
		values[i] |= atomic_load(words[i]) & ~UINT64_C(0xffff);
	}
	*look = (struct process_snapshot){values[0], values[1], values[2], values[3]};
}

static bool kernel_refuses;

static enum process_result kernel_read(const struct process_peer *peer, const struct iovec *target,
				       size_t target_count, const struct iovec *source, size_t source_count,
				       size_t bytes, uint32_t index, bool twice,
				       struct process_snapshot *look)
{
	struct process_snapshot again;

	(void)source_count;
	(void)bytes;
	if (target_count > 0 && kernel_refuses && draw(4) == 0)
		return PROCESS_REFUSED;
	if (target_count > 0)
		kernel_copy(target, source);
	kernel_snapshot(peer, index, look);
	if (twice)
		kernel_snapshot(peer, index, &again);
	if (look->secret != peer->secret)
		return PROCESS_GONE;
	return twice && memcmp(look, &again, sizeof(again)) != 0 ? PROCESS_CHANGING : PROCESS_GOOD;
}

static enum process_result kernel_write(const struct process_peer *peer, const struct iovec *source,
					size_t source_count, const struct iovec *target, size_t target_count,
					size_t bytes)
{
	(void)peer;
	(void)source_count;
	(void)target_count;
	(void)bytes;
	if (kernel_refuses && draw(4) == 0)
		return PROCESS_REFUSED;
	kernel_copy(target, source);
	return PROCESS_GOOD;
}

#define shared_acquire_u64(word) acquire(word)
#define shared_store_u64(word, new) store(&(word)->hidden, new)
#define shared_release_u64(word, new) store(&(word)->hidden, new)
#include "world.h"

#undef atomic_store_explicit
#define atomic_store_explicit(word, new, order) \
	do { \
		store(word, new); \
		if ((order) == memory_order_seq_cst) \
			fence(); \
	} while (0)
#define transfer_fence fence
#define buffer_to_region write_out
#define shared_copy_out write_in_one
#define copy_past_cache_out write_in_one
#define copy_linewise_in read_in
#define process_read kernel_read
#define process_write kernel_write
/* NOLINTBEGIN(bugprone-suspicious-include) */
#include "proto/single_copy.c"
#include "proto/single_copy_offer.c"
/* NOLINTEND(bugprone-suspicious-include) */

/* ---- the two applications ---- */

#define SECTION_BYTES (WORLD_SECTION_BYTES + HEAP_BYTES)
#define HEAP_BYTES (128U * 1024U)
/* If an end polls this often without an end, it hangs. */
#define POLLS_MAX 20000U

static struct world world;
static struct node *left = &world.nodes[0];
static struct node *right = &world.nodes[1];
static uint32_t messages; /* to be sent; the second uses the lines of the first */
static uint32_t sent;
static uint32_t received;
/*
 * The receiver also sends itself a message, and receives it as soon as it has received another message. It
 * uses the line that the other message's sender may be reading at this moment.
 */
static unsigned char own_source[LENGTH];
static unsigned char own_target[LENGTH];
static uint32_t own_ends; /* of the two ends */
static uint32_t number;   /* of the run; bytes depend on it */
static size_t room;
static uint32_t fails_at; /* counted in the receiver's polls; 0: never */
static bool failed;

static uint64_t word_at(size_t index, uint32_t message)
{
	return (index + 1) * UINT64_C(0x9e3779b97f4a7c15) + number * UINT64_C(1000003) + message;
}

static void send_next(void)
{
	for (size_t i = 0; i < LENGTH / 8; i++)
		memcpy(source_bytes + 8 * i, &(uint64_t){word_at(i, sent)}, 8);
	sending = true;
	if (node_send(left, right, source_bytes, LENGTH, 5, FI_TAGGED, NULL) != 0)
		BREAK("the message could not be sent");
}

static void receive_next(void)
{
	memset(target_bytes, 0, LENGTH);
	receiving = true;
	if (node_receive(right, left, target_bytes, room, 5, FI_TAGGED, NULL) != 0)
		BREAK("the message could not be received");
}

static void end_send(void)
{
	struct completion entry = *completion_first(&left->sends);

	left->sends.head++;
	sending = false;
	memset(source_bytes, 0xee, LENGTH);
	if (entry.error != 0)
		failed = true;
	if (++sent < messages && !failed)
		send_next();
}

static void end_receive(void)
{
	struct completion entry = *completion_first(&right->receives);

	right->receives.head++;
	if (entry.context == own_target) {
		own_ends++;
		if (entry.error != 0 || memcmp(own_target, own_source, LENGTH) != 0)
			BREAK("the receiver's own message is wrong");
		return;
	}
	if (entry.error != 0 && entry.error != FI_ETRUNC)
		failed = true;
	for (size_t i = 0; !failed && i < room / 8; i++) {
		uint64_t word = 0;
		memcpy(&word, target_bytes + 8 * i, 8);
		if (word != word_at(i, received)) {
			BREAK("the word at %zu of message %u is wrong", 8 * i, received);
			break;
		}
	}
	receiving = false;
	if (received == 0 && node_receive(right, right, own_target, LENGTH, 6, FI_TAGGED, own_target) != 0)
		BREAK("the receiver's own message could not be received");
	if (++received < messages && !failed)
		receive_next();
}

static bool is_over(void)
{
	if (broken[0] != '\0')
		return true;
	if (own_ends < 2)
		return false;
	return failed ? !sending && !receiving : sent == messages && received == messages;
}

static void be_sender(void)
{
	send_next();
	for (uint32_t polls = 0; !is_over() && polls < POLLS_MAX; polls++) {
		(void)messenger_progress(left->messenger);
		if (!completion_is_empty(&left->sends))
			end_send();
		/* The periodic check runs at every poll here. */
		if (fails_at != 0)
			transport_check_peers(left->messenger->transport);
		flush();
		change();
	}
}

static void be_receiver(void)
{
	for (uint32_t polls = 1; !is_over() && polls < POLLS_MAX; polls++) {
		if (polls == fails_at)
			transport_fail(right->messenger->transport, &world_peer(right, left)->peer, -EPROTO,
				       "the test wants it");
		(void)messenger_progress(right->messenger);
		if (!completion_is_empty(&right->receives))
			end_receive();
		if (!completion_is_empty(&right->sends)) {
			right->sends.head++;
			own_ends++;
		}
		flush();
		change();
	}
}

static void enter(int which)
{
	if (which == 0)
		be_sender();
	else
		be_receiver();
	/* The other end goes on until it ends as well. */
	ends[which].ended = true;
	flush();
	current = ends[!which].ended ? NULL : &ends[!which];
	if (current != NULL)
		go_to(&ends[which].context, &current->context, current->fiber);
	else
		go_to(&ends[which].context, &origin, origin_fiber);
}

/*
 * A function of its own: the compiler assumes that getcontext() may return twice, which then concerns no
 * other code.
 */
static __attribute__((noinline)) void open_context(ucontext_t *context)
{
	(void)getcontext(context);
}

static void run(void)
{
	static char stacks[2][STACK_BYTES];

	number++;
	points = 0;
	sent = 0;
	received = 0;
	failed = false;
	broken[0] = '\0';
	for (int i = 0; i < 2; i++) {
		void *fiber = ends[i].fiber;
		ends[i] = (struct end){.fiber = fiber};
		open_context(&ends[i].context);
		ends[i].context.uc_stack = (stack_t){.ss_sp = stacks[i], .ss_size = STACK_BYTES};
		makecontext(&ends[i].context, (void (*)(void))enter, 1, i);
#ifdef __SANITIZE_THREAD__
		if (fiber == NULL)
			ends[i].fiber = __tsan_create_fiber(0);
		origin_fiber = __tsan_get_current_fiber();
#endif
	}
	/* The receive is posted first, so that the copy begins as soon as possible. */
	receive_next();
	own_ends = 0;
	memset(own_source, (int)(number & 0xff), LENGTH);
	if (node_send(right, right, own_source, LENGTH, 6, FI_TAGGED, NULL) != 0)
		BREAK("the receiver's own message could not be sent");
	(void)messenger_progress(right->messenger);
	current = &ends[0];
	go_to(&origin, &ends[0].context, ends[0].fiber);
	current = NULL;
	if (broken[0] == '\0' && !is_over())
		BREAK("the copy does not end");
	for (int i = 0; i < 2 && broken[0] == '\0'; i++)
		if (world.nodes[i].messenger->single->free_count != REGION_TRANSFERS)
			BREAK("a transfer stays open");
}

#define RUN(...) \
	do { \
		run(); \
		if (broken[0] != '\0') \
			fail_msg("%s: %s", broken, (snprintf(name, sizeof(name), __VA_ARGS__), name)); \
	} while (0)

/* ---- worlds ---- */

enum location { PRIVATE, HEAP_OF_SENDER, HEAP_OF_RECEIVER, HEAP_OF_BOTH, LOCATIONS };

static unsigned char *private_bytes[2];

static void open_world(enum location location)
{
	world = (struct world){.count = 2, .region = world_region_with_heaps(2, SECTION_BYTES, HEAP_BYTES)};
	for (int i = 0; i < 2; i++) {
		private_bytes[i] = malloc(LENGTH);
		assert_non_null(private_bytes[i]);
		node_open(&world.nodes[i], world.region);
		assert_int_equal(single_copy_open(world.nodes[i].messenger, SINGLE_COPY_ON), 0);
	}
	source_bytes = location == HEAP_OF_SENDER || location == HEAP_OF_BOTH
			       ? left->messenger->transport->heap->base
			       : private_bytes[0];
	target_bytes = location == HEAP_OF_RECEIVER || location == HEAP_OF_BOTH
			       ? right->messenger->transport->heap->base
			       : private_bytes[1];
	room = LENGTH;
	messages = 1;
	seed = 0;
	eager = false;
	fails_at = 0;
	kernel_refuses = false;
	changes[0] = 0;
	changes[1] = 0;
	/* Both are connected, and each knows the other's methods. */
	RUN("the first");
}

static void close_world(void)
{
	world_close(&world);
	for (int i = 0; i < 2; i++)
		free(private_bytes[i]);
}

/*
 * The number of points after the first change that cover a claim, a check, a copy and the steps afterwards.
 */
#define APART_MAX 40U

/* Under a sanitizer, try one schedule in STRIDE. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define STRIDE 29U
#else
#define STRIDE 1U
#endif

static void test_changes_anywhere(void **state)
{
	(void)state;
	for (enum location location = PRIVATE; location < LOCATIONS; location++) {
		open_world(location);
		for (int visible = 0; visible < 2; visible++) {
			eager = visible;
			changes[0] = 0;
			changes[1] = 0;
			RUN("no change");
			uint32_t last = points;
			assert_true(last > 50);
			for (changes[0] = 1; changes[0] <= last; changes[0]++)
				for (changes[1] = changes[0] + 1; changes[1] <= changes[0] + APART_MAX;
				     changes[1] += STRIDE)
					RUN("location %d, changes at %u and %u, stores visible %s",
					    (int)location, changes[0], changes[1],
					    visible ? "at once" : "late");
		}
		close_world();
	}
}

static void test_random_schedules(void **state)
{
	(void)state;
	for (enum location location = PRIVATE; location < LOCATIONS; location++) {
		open_world(location);
		for (uint64_t start = 1; start <= 1400 / STRIDE; start++) {
			seed = start * UINT64_C(0x9e3779b97f4a7c15);
			room = start % 4 == 0 ? LENGTH - 20001 : LENGTH;
			messages = 2;
			RUN("location %d, seed %llu", (int)location, (unsigned long long)start);
		}
		close_world();
	}
}

/* The kernel refuses one end's copies: the rest goes in pieces, or the other end copies it. */
static void test_a_kernel_that_refuses(void **state)
{
	(void)state;
	open_world(PRIVATE);
	for (uint64_t start = 1; start <= 1400 / STRIDE; start++) {
		seed = start * UINT64_C(0x9e3779b97f4a7c15);
		kernel_refuses = true;
		RUN("seed %llu", (unsigned long long)start);
		/* Reset the refusal for the next run. */
		for (int i = 0; i < 2; i++)
			world_peer(&world.nodes[i], &world.nodes[!i])->process_epoch = 0;
	}
	close_world();
}

/* The receiver ends the connection in the middle. From then on its buffer stays unchanged. */
static void test_a_failure_in_the_middle(void **state)
{
	(void)state;
	for (enum location location = PRIVATE; location < LOCATIONS; location++)
		for (uint64_t start = 1; start <= 60 / (STRIDE > 1 ? 4 : 1); start++) {
			open_world(location);
			seed = start * UINT64_C(0x9e3779b97f4a7c15);
			fails_at = 1 + (uint32_t)draw(8);
			RUN("location %d, seed %llu", (int)location, (unsigned long long)start);
			close_world();
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_changes_anywhere),
		cmocka_unit_test(test_random_schedules),
		cmocka_unit_test(test_a_kernel_that_refuses),
		cmocka_unit_test(test_a_failure_in_the_middle),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
