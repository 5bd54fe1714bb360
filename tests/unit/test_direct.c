/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One-sided operations that the initiator carries out itself in memory in the region: which memory it can
 * reach, in which order, and what a table full of nonsense can do.
 */
#include "world.h"

#include <stdlib.h>
#include <time.h>

#define MEMBERS 4U
#define HEAP_BYTES ((uint64_t)1024 * 1024)
#define SECTION_BYTES (WORLD_SECTION_BYTES + HEAP_BYTES)
#define KEY 77
#define PRIVATE_KEY 78
#define BYTES 300000U
#define ADDRESS UINT64_C(0x1000)

static struct world world;
static struct node *initiator = &world.nodes[0];
static struct node *target = &world.nodes[1];
static unsigned char private[BYTES];
static unsigned char *memory; /* in the target's heap */
static struct registration registration;
static struct registration private_registration;
static struct registration_table table;

static void register_memory(struct registration *as, uint64_t key, unsigned char *base)
{
	*as = (struct registration){
		.key = key,
		.base = base,
		.length = BYTES,
		.address = ADDRESS,
		.access = FI_REMOTE_READ | FI_REMOTE_WRITE,
		.enabled = true,
	};
	assert_int_equal(registrations_add(&table, as), 0);
}

static int open_world(void **state)
{
	(void)state;
	world = (struct world){.count = 2,
			       .region = world_region_with_heaps(MEMBERS, SECTION_BYTES, HEAP_BYTES)};
	node_open(initiator, world.region);
	node_open(target, world.region);
	registrations_open(&table);
	memory = heap_allocate(target->messenger->transport->heap, BYTES, 1, true);
	assert_non_null(memory);
	memset(private, 0, sizeof(private));
	register_memory(&registration, KEY, memory);
	register_memory(&private_registration, PRIVATE_KEY, private);
	target->messenger->registrations = &table;
	direct_expose(target->messenger, &registration);
	direct_expose(target->messenger, &private_registration);
	return 0;
}

static int close_world(void **state)
{
	(void)state;
	(void)heap_release(memory);
	world_close(&world);
	registrations_close(&table);
	return 0;
}

/* A complete request. The caller may divide its `pieces`. */
static struct remote_request make(enum remote_kind kind, struct iovec *piece, struct fi_rma_iov *range)
{
	return (struct remote_request){
		.kind = kind,
		.pieces = piece,
		.count = 1,
		.length = piece->iov_len,
		.ranges = range,
		.range_count = 1,
		.to = world_peer(initiator, target),
		.context = piece->iov_base,
		.flags = FI_COMPLETION,
	};
}

static ssize_t begin(enum remote_kind kind, void *bytes, size_t length, uint64_t key, uint64_t offset,
		     uint64_t flags)
{
	struct iovec piece = {bytes, length};
	struct fi_rma_iov range = {ADDRESS + offset, length, key};
	struct remote_request request = make(kind, &piece, &range);

	request.flags |= flags;
	return messenger_remote(initiator->messenger, &request);
}

static uint64_t asked(void)
{
	return world_peer(initiator, target)->remote.requests;
}

/* The claim word of a successor. */
static uint64_t succeed(uint64_t claim)
{
	return ((claim >> 32) + 1) << 32 | SLOT_JOINED;
}

/* The operation was carried out within the call, without a request to the target. */
static void assert_direct(ssize_t result, const void *context)
{
	assert_int_equal(result, 0);
	assert_int_equal(asked(), 0);
	assert_false(completion_is_empty(&initiator->sends));
	assert_int_equal(completion_first(&initiator->sends)->error, 0);
	assert_ptr_equal(completion_first(&initiator->sends)->context, context);
	initiator->sends.head++;
	assert_true(completion_is_empty(&initiator->sends));
}

/* The target carried out the operation, with this result. */
static void assert_asked(ssize_t result, int error)
{
	uint64_t before = asked();

	assert_int_equal(result, 0);
	assert_true(before > 0);
	assert_int_equal(world_await(&world, &initiator->sends).error, error);
	world_settle(&world);
	/* Reset the counters, so that the next operation begins like the first. */
	assert_int_equal(world_peer(initiator, target)->remote.answered, before);
	world_peer(initiator, target)->remote.requests = 0;
	world_peer(initiator, target)->remote.answered = 0;
	world_peer(target, initiator)->remote.taken = 0;
	world_peer(target, initiator)->remote.told = 0;
}

static void test_bytes_go_there_and_back_without_the_target(void **state)
{
	static const size_t lengths[] = {1, 7, 8, 31, 48, 64, 65, 1000, 4096, 4097, 65536, 65537, 200001};
	static unsigned char source[BYTES];
	static unsigned char back[BYTES];

	(void)state;
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		size_t length = lengths[i];
		fill_bytes(source, length, i);
		memset(memory, 0xee, BYTES);
		assert_direct(begin(REMOTE_WRITE, source, length, KEY, 9, 0), source);
		assert_bytes(memory + 9, length, i);
		assert_int_equal(memory[8], 0xee);
		assert_int_equal(memory[9 + length], 0xee);
		memset(back, 0, sizeof(back));
		assert_direct(begin(REMOTE_READ, back, length, KEY, 9, FI_DELIVERY_COMPLETE), back);
		assert_bytes(back, length, i);
		assert_int_equal(back[length], 0);
	}
	/* All of the registration, and no byte more. */
	assert_direct(begin(REMOTE_READ, back, BYTES, KEY, 0, 0), back);
	assert_asked(begin(REMOTE_READ, back, BYTES, KEY, 1, 0), FI_EACCES);
	assert_asked(begin(REMOTE_READ, back, 1, KEY, BYTES, 0), FI_EACCES);
	assert_asked(begin(REMOTE_WRITE, back, 1, KEY, UINT64_MAX, 0), FI_EACCES);
	assert_asked(begin(REMOTE_WRITE, back, 1, KEY + 2, 0, 0), FI_EKEYREJECTED);
	/* Private memory is reached as before, by a request. */
	assert_asked(begin(REMOTE_WRITE, source, 100, PRIVATE_KEY, 0, 0), 0);
	assert_memory_equal(private, source, 100);
}

static void test_several_pieces_and_ranges(void **state)
{
	unsigned char parts[3][50];
	struct iovec pieces[3] = {{parts[0], 50}, {parts[1], 1}, {parts[2], 49}};
	struct fi_rma_iov ranges[2] = {{ADDRESS + 1000, 30, KEY}, {ADDRESS, 70, KEY}};
	struct remote_request request = make(REMOTE_WRITE, pieces, ranges);
	unsigned char all[100];

	(void)state;
	fill_bytes(all, sizeof(all), 3);
	memcpy(parts[0], all, 50);
	memcpy(parts[1], all + 50, 1);
	memcpy(parts[2], all + 51, 49);
	request.count = 3;
	request.range_count = 2;
	request.length = 100;
	assert_direct(messenger_remote(initiator->messenger, &request), parts[0]);
	assert_memory_equal(memory + 1000, all, 30);
	assert_memory_equal(memory, all + 30, 70);
	memset(parts, 0, sizeof(parts));
	request.kind = REMOTE_READ;
	assert_direct(messenger_remote(initiator->messenger, &request), parts[0]);
	assert_memory_equal(parts[0], all, 50);
	assert_memory_equal(parts[1], all + 50, 1);
	assert_memory_equal(parts[2], all + 51, 49);
	/* If one range is private, or a range has no memory, the target does all of it. */
	ranges[0].key = PRIVATE_KEY;
	assert_asked(messenger_remote(initiator->messenger, &request), 0);
	ranges[0] = (struct fi_rma_iov){ADDRESS, 0, KEY};
	ranges[1].len = 100;
	assert_asked(messenger_remote(initiator->messenger, &request), 0);
}

/* Each form: from one piece, from several pieces, and operations that no single instruction carries out. */
static void test_atomics(void **state)
{
	uint64_t operands[4] = {5, 6, 7, 8};
	uint64_t compares[4] = {10, 10, 10, 10};
	uint64_t results[4] = {0};
	struct iovec piece = {operands, 32};
	struct iovec halves[2] = {{operands, 16}, {operands + 2, 16}};
	struct iovec compare = {compares, 32};
	struct iovec result[2] = {{results, 32}, {NULL, 0}};
	struct fi_rma_iov range = {ADDRESS, 32, KEY};
	struct remote_request request = make(REMOTE_ATOMIC, &piece, &range);
	uint64_t *values = (uint64_t *)(void *)memory;

	(void)state;
	request.datatype = FI_UINT64;
	request.operation = FI_SUM;
	for (int i = 0; i < 4; i++)
		values[i] = 10;
	assert_direct(messenger_remote(initiator->messenger, &request), operands);
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(values[i], 15 + i);
	request.form = ATOMIC_FETCH;
	request.results = result;
	request.result_count = 1;
	request.pieces = halves;
	request.count = 2;
	assert_direct(messenger_remote(initiator->messenger, &request), operands);
	for (uint64_t i = 0; i < 4; i++) {
		assert_int_equal(results[i], 15 + i);
		assert_int_equal(values[i], 20 + 2 * i);
	}
	request.form = ATOMIC_COMPARE;
	request.operation = FI_CSWAP;
	request.compares = &compare;
	request.compare_count = 1;
	compares[2] = 24;
	result[0] = (struct iovec){results + 2, 16};
	result[1] = (struct iovec){results, 16};
	request.result_count = 2;
	assert_direct(messenger_remote(initiator->messenger, &request), operands);
	assert_int_equal(values[1], 22);
	assert_int_equal(values[2], 7);
	assert_int_equal(results[0], 24);
	assert_int_equal(results[2], 20);
	request.form = ATOMIC_FETCH;
	request.operation = FI_ATOMIC_READ;
	request.count = 0;
	assert_direct(messenger_remote(initiator->messenger, &request), operands);
	assert_int_equal(results[2], 20);
	assert_int_equal(results[0], 7);
	request.operation = FI_SUM;
	request.pieces = &piece;
	request.count = 1;
	/* Operands longer than an instruction can change: the target carries them out under its lock. */
	request.datatype = FI_DOUBLE_COMPLEX;
	assert_asked(messenger_remote(initiator->messenger, &request), 0);
	request.datatype = FI_FLOAT_COMPLEX;
	range.addr += 4;
	assert_asked(messenger_remote(initiator->messenger, &request), 0);
	request.datatype = FI_UINT32;
	range.addr += 1;
	assert_asked(messenger_remote(initiator->messenger, &request), FI_EINVAL);
}

/* An access that the registration does not allow is not carried out, and the target refuses it. */
static void test_access_is_kept(void **state)
{
	uint64_t value = 1;

	(void)state;
	for (int way = 0; way < 2; way++) {
		bool reads = way == 0;
		direct_conceal(target->messenger, &registration);
		registration.access = reads ? FI_REMOTE_READ : FI_REMOTE_WRITE;
		direct_expose(target->messenger, &registration);
		ssize_t result = begin(REMOTE_READ, &value, 8, KEY, 0, 0);
		if (reads)
			assert_direct(result, &value);
		else
			assert_asked(result, FI_EACCES);
		result = begin(REMOTE_WRITE, &value, 8, KEY, 0, 0);
		if (reads)
			assert_asked(result, FI_EACCES);
		else
			assert_direct(result, &value);
	}
}

/* Operations that the target must count or report are carried out by the target. */
static void test_what_is_counted_goes_through_the_target(void **state)
{
	struct completion_counter counter = {0};
	uint64_t value = 1;

	(void)state;
	assert_asked(begin(REMOTE_WRITE, &value, 8, KEY, 0, FI_REMOTE_CQ_DATA), 0);
	assert_int_equal(world_await(&world, &target->receives).flags & FI_REMOTE_CQ_DATA, FI_REMOTE_CQ_DATA);
	direct_conceal(target->messenger, &registration);
	registration.counter = &counter;
	direct_expose(target->messenger, &registration);
	assert_asked(begin(REMOTE_WRITE, &value, 8, KEY, 0, 0), 0);
	assert_int_equal(counter.value, 1);
	assert_direct(begin(REMOTE_READ, &value, 8, KEY, 0, 0), &value);
	direct_conceal(target->messenger, &registration);
	registration.counter = NULL;
	target->messenger->remote_read_counter = &counter;
	direct_expose(target->messenger, &registration);
	assert_asked(begin(REMOTE_READ, &value, 8, KEY, 0, 0), 0);
	assert_int_equal(counter.value, 2);
	assert_direct(begin(REMOTE_WRITE, &value, 8, KEY, 0, 0), &value);
	/* Operations without bytes too, because the target might report them. */
	assert_asked(begin(REMOTE_WRITE, &value, 0, KEY, 0, 0), 0);
}

/* No direct operation overtakes an earlier request. After the answer, operations are direct again. */
static void test_the_order_of_both_ways_is_that_of_the_calls(void **state)
{
	uint64_t first = 1;
	uint64_t second = 2;
	uint64_t seen = 0;

	(void)state;
	/* No answer comes, because the target makes no progress. */
	assert_int_equal(begin(REMOTE_WRITE, &first, 8, PRIVATE_KEY, 0, FI_INJECT), 0);
	private_registration.base = memory; /* the same memory under both keys, which is allowed */
	assert_int_equal(begin(REMOTE_WRITE, &second, 8, KEY, 0, FI_INJECT), 0);
	assert_int_equal(begin(REMOTE_READ, &seen, 8, KEY, 0, 0), 0);
	assert_int_equal(asked(), 3);
	assert_int_equal(((uint64_t *)(void *)memory)[0], 0);
	world_settle(&world);
	assert_int_equal(seen, 2);
	assert_int_equal(((uint64_t *)(void *)memory)[0], 2);
	assert_int_equal(world_peer(initiator, target)->remote.answered, 3);
	initiator->sends.head = initiator->sends.tail;
	assert_int_equal(begin(REMOTE_WRITE, &first, 8, KEY, 0, 0), 0);
	assert_int_equal(asked(), 3);
	assert_int_equal(((uint64_t *)(void *)memory)[0], 1);
	/* An answer is requested where nobody waits for one. Otherwise none would ever come. */
	initiator->sends.head = initiator->sends.tail;
	assert_int_equal(begin(REMOTE_WRITE, &first, 8, PRIVATE_KEY, 8, FI_INJECT), 0);
	assert_int_equal(begin(REMOTE_WRITE, &first, 8, KEY, 8, FI_INJECT), 0);
	world_settle(&world);
	assert_int_equal(asked(), 5);
	assert_int_equal(begin(REMOTE_WRITE, &second, 8, KEY, 8, FI_INJECT), 0);
	assert_int_equal(asked(), 5);
	assert_int_equal(((uint64_t *)(void *)memory)[1], 2);
}

/* A closed registration can no longer be reached, and its line is used again. */
static void test_what_is_withdrawn_is_out_of_reach(void **state)
{
	unsigned char *other = heap_allocate(target->messenger->transport->heap, BYTES, 1, true);
	struct registration again;
	uint64_t value = 7;

	(void)state;
	assert_non_null(other);
	for (int round = 0; round < 3; round++) {
		assert_direct(begin(REMOTE_WRITE, &value, 8, KEY, 0, 0), &value);
		direct_conceal(target->messenger, &registration);
		registrations_remove(&table, &registration);
		assert_asked(begin(REMOTE_WRITE, &value, 8, KEY, 0, 0), FI_EKEYREJECTED);
		/* Other memory under the same key. */
		register_memory(&again, KEY, other);
		direct_expose(target->messenger, &again);
		value++;
		assert_direct(begin(REMOTE_WRITE, &value, 8, KEY, 0, 0), &value);
		assert_int_equal(((uint64_t *)(void *)other)[0], value);
		assert_int_equal(((uint64_t *)(void *)memory)[0], value - 1);
		direct_conceal(target->messenger, &again);
		registrations_remove(&table, &again);
		assert_int_equal(registrations_add(&table, &registration), 0);
		direct_expose(target->messenger, &registration);
	}
	(void)heap_release(other);
}

/* Registrations beyond the table's room are reached by requests. */
static void test_a_full_table(void **state)
{
	static struct registration many[2 * REGION_EXPOSURES];
	uint64_t value = 3;

	(void)state;
	for (uint32_t i = 0; i < 2 * REGION_EXPOSURES; i++) {
		register_memory(&many[i], 1000 + i, memory);
		direct_expose(target->messenger, &many[i]);
	}
	for (uint32_t i = 0; i < 2 * REGION_EXPOSURES; i++) {
		ssize_t result = begin(REMOTE_WRITE, &value, 8, 1000 + i, 8UL * i, 0);
		if (i + 1 < REGION_EXPOSURES)
			assert_direct(result, &value);
		else
			assert_asked(result, 0);
		assert_int_equal(((uint64_t *)(void *)memory)[i], 3);
	}
	/* There is room again, and the next registration takes it. */
	direct_conceal(target->messenger, &many[5]);
	direct_expose(target->messenger, &many[2 * REGION_EXPOSURES - 1]);
	assert_asked(begin(REMOTE_WRITE, &value, 8, 1005, 0, 0), 0);
	assert_direct(begin(REMOTE_WRITE, &value, 8, 1000 + 2 * REGION_EXPOSURES - 1, 0, 0), &value);
	for (uint32_t i = 0; i < 2 * REGION_EXPOSURES; i++) {
		direct_conceal(target->messenger, &many[i]);
		registrations_remove(&table, &many[i]);
	}
}

/* Of a range that lies only partly in the heap, that part is exposed. */
static void test_a_range_that_is_larger_than_the_heap(void **state)
{
	static struct registration everything;
	uint64_t value = 4;

	(void)state;
	everything = (struct registration){
		.key = 5, .length = UINT64_MAX, .access = FI_REMOTE_READ | FI_REMOTE_WRITE, .enabled = true};
	assert_int_equal(registrations_add(&table, &everything), 0);
	direct_expose(target->messenger, &everything);
	assert_direct(begin(REMOTE_WRITE, &value, 8, 5, (uintptr_t)memory - ADDRESS, 0), &value);
	assert_int_equal(((uint64_t *)(void *)memory)[0], 4);
	assert_asked(begin(REMOTE_WRITE, &value, 8, 5, (uintptr_t) private - ADDRESS, 0), 0);
	assert_int_equal(((uint64_t *)(void *)private)[0], 4);
}

/* malloc() takes memory from the first endpoint's heap, and a second endpoint registers it. */
static void test_memory_in_the_heap_of_another_endpoint(void **state)
{
	struct node *other = &world.nodes[2];
	struct registration theirs;
	uint64_t value = 6;

	(void)state;
	node_open(other, world.region);
	world.count = 3;
	unsigned char *block = heap_allocate(other->messenger->transport->heap, BYTES, 1, true);
	register_memory(&theirs, 9, block);
	direct_expose(target->messenger, &theirs);
	assert_direct(begin(REMOTE_WRITE, &value, 8, 9, 16, 0), &value);
	assert_int_equal(((uint64_t *)(void *)block)[2], 6);
	/* The first endpoint is closed, and its memory stays. */
	node_close(other);
	assert_direct(begin(REMOTE_READ, &value, 8, 9, 16, 0), &value);
	/* But only as long as its slot is held. */
	(void)heap_release(block);
	node_open(other, world.region);
	assert_int_equal(node_slot(other), 3);
	uint64_t claim = shared_load_u64(&region_slot(world.region, 2)->claim);
	shared_store_u64(&region_slot(world.region, 2)->claim, succeed(claim));
	assert_int_equal(begin(REMOTE_WRITE, &value, 8, 9, 16, 0), 0);
	assert_int_equal(asked(), 1);
	assert_int_equal(world_peer(initiator, target)->peer.state, PEER_PRESENT);
	shared_store_u64(&region_slot(world.region, 2)->claim, claim);
	registrations_remove(&table, &theirs);
	assert_int_equal(world_await(&world, &initiator->sends).error, FI_EKEYREJECTED);
}

/* A target that leaves or dies can no longer be reached, nor can its successor's memory. */
static void test_a_target_that_is_gone(void **state)
{
	uint64_t value = 9;

	(void)state;
	for (int way = 0; way < 2; way++) {
		struct msg_peer *to = world_peer(initiator, target);
		uint32_t slot = node_slot(target);
		struct iovec piece = {&value, 8};
		struct fi_rma_iov range = {ADDRESS, 8, KEY};
		struct remote_request request = make(REMOTE_WRITE, &piece, &range);
		assert_direct(messenger_remote(initiator->messenger, &request), &value);
		uint64_t *words = (uint64_t *)(void *)memory;
		words[0] = 0;
		if (way == 0) {
			(void)heap_release(memory);
			node_close(target);
			/* Not through the table any more, although no member has taken its slot yet. */
			ssize_t result = messenger_remote(initiator->messenger, &request);
			assert_true(result == 0 || result == -EAGAIN);
			assert_int_equal(words[0], 0);
		} else {
			node_die(target);
		}
		/* A successor with the same words in its section, except the epoch. */
		struct exposure_line line;
		struct section_header *header = section_header(world.region, slot);
		memcpy(&line, &header->exposures[0], sizeof(line));
		uint64_t claim = shared_load_u64(&region_slot(world.region, slot)->claim);
		shared_store_u64(&region_slot(world.region, slot)->claim, succeed(claim));
		if (way == 0)
			shared_store_u64(&header->exposures[0].sequence, 2);
		request.to = to;
		(void)messenger_remote(initiator->messenger, &request);
		assert_int_equal(words[0], 0);
		shared_store_u64(&region_slot(world.region, slot)->claim, claim);
		world_check_peers(&world);
		initiator->sends.head = initiator->sends.tail;
		assert_int_equal(to->peer.state, PEER_FAILED);
		if (way == 1) /* it left its blocks where they were */
			(void)heap_release(memory);
		node_open(target, world.region);
		memory = heap_allocate(target->messenger->transport->heap, BYTES, 1, true);
		registrations_remove(&table, &registration);
		register_memory(&registration, KEY, memory);
		target->messenger->registrations = &table;
		direct_expose(target->messenger, &registration);
	}
	assert_direct(begin(REMOTE_WRITE, &value, 8, KEY, 0, 0), &value);
}

/*
 * A successor waits for members that still store into its predecessor's heap: before they finish, the heap
 * gives out no memory.
 */
static void test_a_successor_uses_its_heap_when_late_stores_are_over(void **state)
{
	struct heap *heap = NULL;
	shared_u64 *reaching = &section_header(world.region, node_slot(initiator))->reaching;
	uint64_t value = 1;

	(void)state;
	assert_direct(begin(REMOTE_WRITE, &value, 8, KEY, 0, 0), &value);
	assert_int_equal(shared_load_u64(reaching), 0);
	const struct member *member = target->messenger->transport->attachments[0].member;
	uint64_t predecessor = (uint64_t)member->epoch << 32 | member->slot;
	node_die(target);
	(void)heap_release(memory);
	world_check_peers(&world);
	initiator->sends.head = initiator->sends.tail;
	/*
	 * The initiator announces a store into the dead target's heap, as if it was stopped before the store.
	 */
	shared_store_u64(reaching, predecessor);
	struct node others[2];
	for (int i = 0; i < 2; i++) /* slots that were never used come first */
		node_open(&others[i], world.region);
	node_open(target, world.region);
	assert_int_equal(node_slot(target), (uint32_t)predecessor);
	heap = target->messenger->transport->heap;
	assert_null(heap_allocate(heap, 1, 1, false));
	assert_non_null(memory = heap_allocate(others[0].messenger->transport->heap, 1, 1, false));
	(void)heap_release(memory);
	shared_store_u64(reaching, 0);
	/* At least a minute, only against hanging. */
	for (int i = 0; i < 60000 && (memory = heap_allocate(heap, BYTES, 1, false)) == NULL; i++)
		(void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	assert_non_null(memory);
	node_close(&others[0]);
	node_close(&others[1]);
}

static struct exposure_line *line_of(const struct node *node)
{
	return &section_header(world.region, node_slot(node))->exposures[0];
}

/* Invalid lines: the connection to the peer that wrote them ends, and nothing is touched. */
static void test_nonsense_in_the_table_costs_the_path(void **state)
{
	const uint64_t heap = section_arena_end(world.region);
	const struct {
		uint64_t address;
		uint64_t length;
		uint64_t offset;
		uint32_t slot;
		uint32_t access;
	} lines[] = {
		{ADDRESS, BYTES, heap - 1, 1, 3},            /* before the heap */
		{ADDRESS, BYTES, 0, 1, 3},                   /* the section's header */
		{ADDRESS, HEAP_BYTES + 1, heap, 1, 3},       /* beyond its end */
		{ADDRESS, 1, SECTION_BYTES, 1, 3},           /* the next section */
		{ADDRESS, UINT64_MAX - ADDRESS, heap, 1, 3}, /* far beyond */
		{ADDRESS, BYTES, UINT64_MAX, 1, 3},          /* wraps */
		{ADDRESS, 16, UINT64_MAX - 7, 1, 3},         /* wraps */
		{UINT64_MAX - 10, 100, heap, 1, 3},          /* an address whose end wraps */
		{ADDRESS, 0, heap, 1, 3},                    /* no bytes */
		{ADDRESS, BYTES, heap, MEMBERS, 3},          /* no member */
		{ADDRESS, BYTES, heap, UINT32_MAX, 3},       /* no member */
		{ADDRESS, BYTES, heap, 0, 3},                /* the heap of another process */
		{ADDRESS, BYTES, heap, 1, 4},                /* an invalid access */
		{ADDRESS, BYTES, heap, 1, UINT32_MAX},
	};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		uint64_t value = 0;
		if (i > 0) {
			(void)close_world(state);
			(void)open_world(state);
		}
		struct exposure_line *line = line_of(target);
		/* All nodes of this process share a process number. Give the initiator another. */
		struct section_header *own = section_header(world.region, node_slot(initiator));
		shared_store_u64(&own->process, 12345);
		shared_store_u32(&line->epoch, 1);
		shared_store_u64(&line->address, lines[i].address);
		shared_store_u64(&line->length, lines[i].length);
		shared_store_u64(&line->offset, lines[i].offset);
		shared_store_u32(&line->slot, lines[i].slot);
		shared_store_u32(&line->access, lines[i].access);
		memcpy(&value, world.region->base, 8);
		unsigned char *before = malloc(world.region->bytes);
		memcpy(before, world.region->base, world.region->bytes);
		const struct msg_peer *to = world_peer(initiator, target);
		ssize_t result = begin(REMOTE_WRITE, &value, 8, KEY, 0, 0);
		if (to->peer.state != PEER_FAILED || to->peer.failure != -EPROTO || result >= 0)
			fail_msg("line %zu was accepted", i);
		assert_memory_equal(before, world.region->base, world.region->bytes);
		free(before);
		world_settle(&world);
	}
}

/* A line during a change has no meaning, and neither has a line that another member overwrites. */
static void test_a_line_that_changes_is_not_believed(void **state)
{
	struct exposure_line *line = line_of(target);
	uint64_t sequence = shared_load_u64(&line->sequence);
	uint64_t value = 8;

	(void)state;
	assert_direct(begin(REMOTE_WRITE, &value, 8, KEY, 0, 0), &value);
	shared_store_u64(&line->sequence, sequence + 1);
	shared_store_u64(&line->offset, UINT64_MAX);
	assert_asked(begin(REMOTE_WRITE, &value, 8, KEY, 0, 0), 0);
	/*
	 * The result of an earlier look-up stays valid while the sequence is unchanged, whatever else changes
	 * in the line.
	 */
	shared_store_u64(&line->offset, section_arena_end(world.region));
	shared_store_u64(&line->sequence, sequence + 2);
	shared_store_u64(&section_header(world.region, node_slot(target))->exposed, 99);
	assert_direct(begin(REMOTE_WRITE, &value, 8, KEY, 0, 0), &value);
	shared_store_u64(&line->offset, UINT64_MAX);
	assert_direct(begin(REMOTE_WRITE, &value, 8, KEY, 8, 0), &value);
	assert_int_equal(((uint64_t *)(void *)memory)[1], 8);
}

/* Random operations on both kinds of memory, compared with a model. */
static void test_a_random_sequence_on_both_kinds_of_memory(void **state)
{
	enum { SPAN = 20000, TIMES = 4000, READS = 64 };
	static unsigned char model[SPAN];
	static unsigned char source[8192];
	static unsigned char read[READS][4096];
	static unsigned char wanted[READS][4096];
	uint64_t seed = 0x7654321;
	uint32_t reads = 0;
	uint32_t direct = 0;

	(void)state;
	private_registration.base = memory; /* one memory, reached both ways */
	for (int i = 0; i < TIMES; i++) {
		static const uint32_t lengths[] = {1, 8, 40, 41, 432, 433, 1000, 4096};
		uint32_t length = lengths[random_below(&seed, 8)];
		uint32_t address = random_below(&seed, SPAN - 4096);
		uint64_t key = random_below(&seed, 4) == 0 ? PRIVATE_KEY : KEY;
		uint64_t before = asked();
		if (random_below(&seed, 3) == 0 && reads < READS) {
			memset(read[reads] + length, 0, 4096 - length);
			memset(wanted[reads], 0, 4096);
			if (begin(REMOTE_READ, read[reads], length, key, address, 0) == 0)
				memcpy(wanted[reads++], model + address, length);
		} else {
			uint32_t from = random_below(&seed, 4096);
			fill_bytes(source, sizeof(source), (uint64_t)i);
			uint64_t flags = random_below(&seed, 2) == 0 ? FI_INJECT_COMPLETE : 0;
			if (begin(REMOTE_WRITE, source + from, length, key, address, flags) == 0)
				memcpy(model + address, source + from, length);
		}
		direct += asked() == before;
		for (uint32_t steps = random_below(&seed, 12); steps > 0; steps--)
			(void)messenger_progress(random_below(&seed, 2) == 0 ? initiator->messenger
									     : target->messenger);
		if (reads < READS && i + 1 < TIMES)
			continue;
		world_settle(&world);
		for (uint32_t k = 0; k < reads; k++)
			assert_memory_equal(read[k], wanted[k], 4096);
		assert_memory_equal(memory, model, SPAN);
		reads = 0;
	}
	assert_true(direct > TIMES / 10);
	for (; !completion_is_empty(&initiator->sends); initiator->sends.head++)
		assert_int_equal(completion_first(&initiator->sends)->error, 0);
}

#define WITH_WORLD(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_WORLD(test_bytes_go_there_and_back_without_the_target),
		WITH_WORLD(test_several_pieces_and_ranges),
		WITH_WORLD(test_atomics),
		WITH_WORLD(test_access_is_kept),
		WITH_WORLD(test_what_is_counted_goes_through_the_target),
		WITH_WORLD(test_the_order_of_both_ways_is_that_of_the_calls),
		WITH_WORLD(test_what_is_withdrawn_is_out_of_reach),
		WITH_WORLD(test_a_full_table),
		WITH_WORLD(test_a_range_that_is_larger_than_the_heap),
		WITH_WORLD(test_memory_in_the_heap_of_another_endpoint),
		WITH_WORLD(test_a_target_that_is_gone),
		WITH_WORLD(test_a_successor_uses_its_heap_when_late_stores_are_over),
		WITH_WORLD(test_nonsense_in_the_table_costs_the_path),
		WITH_WORLD(test_a_line_that_changes_is_not_believed),
		WITH_WORLD(test_a_random_sequence_on_both_kinds_of_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
