/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_receive.c - a messenger against a member that writes anything.
 *
 * The input is a sequence of steps: hostile writes to the region (slots that look valid, credit, connections,
 * claim words, and any bytes anywhere), and calls of the victim's application. The victim must not crash,
 * read beyond the hostile section, or work without bound. When the hostile member is gone in the end, all
 * operations with it must have ended.
 */
#include "fuzz/fuzz.h"
#include "fuzz/work.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define STEPS_MAX 400U

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct region shared_region;

void require(bool condition, const char *what)
{
	if (condition)
		return;
	(void)fprintf(stderr, "fuzz_receive: %s\n", what);
	abort();
}

/* ---- the region ---- */

/* Reserve the addresses, with a guard page at each end. */
static void reserve_region(void)
{
	size_t bytes = region_size(MEMBERS, SECTION_BYTES);
	unsigned char *space =
		mmap(NULL, bytes + 2UL * REGION_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	require(space != MAP_FAILED, "no address space");
	shared_region.base = space + REGION_PAGE;
	shared_region.bytes = bytes;
	shared_region.kind = REGION_FILE;
	shared_region.fd = -1;
}

/*
 * Called at the start, and again after the victim has left the region, because then private memory is mapped
 * here.
 */
static void map_region(void)
{
	struct region *region = &shared_region;

	region->left = false;
	region->fd = memfd_create("vicinal-fuzz", MFD_CLOEXEC);
	require(region->fd >= 0 && posix_fallocate(region->fd, 0, (off_t)region->bytes) == 0, "no memory");
	require(mmap(region->base, region->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, region->fd,
		     0) == region->base,
		"the region cannot be mapped");
}

static void format_region(void)
{
	static const uint64_t id[2] = {1, 2};
	struct region *region = &shared_region;
	struct region_error error;

	memset(region->base, 0, region->bytes);
	require(region_format_heaps(region->base, region->bytes, MEMBERS, SECTION_BYTES, HEAP_BYTES, id) == 0,
		"no format");
	require(region_check_header((const struct region_header *)(void *)region->base, region->bytes, region,
				    &error) == 0,
		"no region");
}

/* ---- the victim's application ---- */

static void give_buffer(struct operation *operation)
{
	if (operation->location == IN_MEMORY)
		free(operation->buffer);
	operation->buffer = NULL;
}

/* The poison section, which nobody may touch, follows the second half. */
static unsigned char *heap_buffer(const struct fuzz *fuzz, enum location location, size_t length)
{
	uint64_t end = location == IN_FIRST_HALF ? SECTION_BYTES - HEAP_BYTES / 2 : SECTION_BYTES;

	for (uint32_t i = 0; i < OPERATIONS_MAX; i++)
		if (fuzz->operations[i].active && fuzz->operations[i].location == location)
			return NULL;
	return region_section(fuzz->region, VICTIM) + end - length;
}

struct operation *new_operation(struct fuzz *fuzz, size_t length, enum location location)
{
	for (uint32_t i = 0; i < OPERATIONS_MAX; i++) {
		struct operation *operation = &fuzz->operations[i];
		if (operation->active)
			continue;
		/* A block of exactly this length, so that sanitizers see a byte beside. */
		operation->location = location;
		operation->buffer = location != IN_MEMORY ? heap_buffer(fuzz, location, length)
							  : malloc(length > 0 ? length : 1);
		if (operation->buffer == NULL)
			return NULL;
		memset(operation->buffer, 7, length);
		operation->active = true;
		operation->send = false;
		operation->several = false;
		operation->directed = false;
		operation->claims = false;
		operation->length = length;
		return operation;
	}
	return NULL;
}

void end_operation(struct operation *operation)
{
	require(operation->active, "an operation completes twice");
	operation->active = false;
	give_buffer(operation);
}

static void take_completions(struct fuzz *fuzz)
{
	for (; !completion_is_empty(&fuzz->completions); fuzz->completions.head++) {
		const struct completion *entry = completion_first(&fuzz->completions);
		struct operation *operation = entry->context;
		if (operation == NULL) /* a peek */
			continue;
		require(operation->active, "a completion names no operation");
		require(((entry->flags & FI_SEND) != 0) == operation->send, "a send completes as a receive");
		if (!operation->several || (entry->flags & FI_MULTI_RECV) != 0)
			end_operation(operation);
	}
}

static size_t take_length(struct fuzz *fuzz)
{
	static const uint32_t lengths[] = {0,    1,    24,    32,    40,    48,    49,    104,
					   440,  441,  2048,  4096,  4097,  16384, 65536, 100000,
					   4095, 8192, 16385, 20000, 30000, 65537, 80000, 140000};
	uint8_t choice = take_u8(&fuzz->input);

	return lengths[choice % 24] + choice / 64;
}

struct msg_peer *meet(const struct fuzz *fuzz, bool hostile)
{
	uint32_t slot = hostile ? HOSTILE : VICTIM;
	uint32_t epoch = 0;
	uint64_t nonce = 0;

	if (!member_identify(fuzz->region, slot, &epoch, &nonce))
		return NULL;
	return (struct msg_peer *)(void *)transport_meet(fuzz->messenger->transport, slot, epoch, nonce);
}

static size_t cut(struct iovec *pieces, struct operation *operation, size_t length, uint8_t style)
{
	size_t count = style % BUFFER_PIECES + 1;
	size_t part = length / count;

	for (size_t i = 0; i < count; i++)
		pieces[i] = (struct iovec){operation->buffer + i * part,
					   i + 1 == count ? length - i * part : part};
	return count;
}

static void victim_send(struct fuzz *fuzz)
{
	static const uint64_t flags[] = {FI_MSG, FI_TAGGED, FI_TAGGED | FI_DELIVERY_COMPLETE,
					 FI_MSG | FI_REMOTE_CQ_DATA | FI_DELIVERY_COMPLETE};

	uint8_t style = take_u8(&fuzz->input);
	struct msg_peer *to = meet(fuzz, (style & 7) != 0);
	size_t length = take_length(fuzz);
	enum location location = style & 128 ? IN_FIRST_HALF : IN_MEMORY;
	struct operation *operation = to == NULL ? NULL : new_operation(fuzz, length, location);
	struct iovec pieces[BUFFER_PIECES];

	if (operation == NULL)
		return;
	operation->send = true;
	operation->directed = to->peer.source == HOSTILE;
	ssize_t result = messenger_send(
		fuzz->messenger,
		&(struct send_request){
			.pieces = pieces,
			.count = cut(pieces, operation, length, location != IN_MEMORY ? 0 : style >> 3 & 3),
			.length = length,
			.to = to,
			.tag = take_u8(&fuzz->input) % 4,
			.context = operation,
			.flags = flags[style >> 5 & 3] | FI_COMPLETION,
		});
	if (result != 0)
		end_operation(operation);
}

static void victim_receive(struct fuzz *fuzz)
{
	uint8_t style = take_u8(&fuzz->input);
	const struct msg_peer *from = style & 1 ? meet(fuzz, (style & 2) != 0) : NULL;
	size_t length = take_length(fuzz);
	struct operation *operation = NULL;
	struct iovec pieces[BUFFER_PIECES];
	struct receive_request request = {
		.pieces = pieces,
		.source = from == NULL ? MATCH_ANY_SOURCE : from->peer.source,
		.tag = take_u8(&fuzz->input) % 4,
		.ignore = style & 4 ? 0 : UINT64_MAX,
		.flags = FI_COMPLETION | (style & 8 ? FI_MSG : FI_TAGGED),
	};

	/* As the provider's receive calls do. */
	if (from != NULL && !messenger_may_receive(fuzz->messenger, from, &request))
		return;
	enum location location = (style & 0x30) == 0x10 ? IN_SECOND_HALF : IN_MEMORY;
	operation = new_operation(fuzz, length, location);
	if (operation == NULL)
		return;
	request.context = operation;
	if ((style & 0x30) == 0x30) {
		request.flags |= FI_MULTI_RECV;
		operation->several = true;
	}
	operation->directed = from != NULL && from->peer.source == HOSTILE;
	request.count =
		cut(pieces, operation, length, operation->several || location != IN_MEMORY ? 0 : style >> 6);
	if (messenger_receive(fuzz->messenger, &request) != 0)
		end_operation(operation);
}

/* Claim a waiting message, if there is one. Its operation remembers it until it is received. */
static void victim_claim(struct fuzz *fuzz, struct receive_request *request, struct iovec *piece)
{
	size_t length = take_length(fuzz);
	struct operation *operation = new_operation(fuzz, length, IN_MEMORY);
	bool found = false;

	if (operation == NULL)
		return;
	*piece = (struct iovec){operation->buffer, length};
	request->count = 1;
	request->context = operation;
	request->flags |= FI_CLAIM;
	/* The completion of the peek says whether there was a message to claim. */
	uint32_t before = fuzz->completions.tail;
	(void)messenger_receive(fuzz->messenger, request);
	for (uint32_t at = before; at != fuzz->completions.tail; at++) {
		struct completion *entry = &fuzz->completions.entries[at & fuzz->completions.mask];
		if (entry->context != operation)
			continue;
		found = entry->error == 0;
		entry->context = NULL;
	}
	operation->claims = found;
	if (!found)
		end_operation(operation);
}

/* Peek, claim, or discard. */
static void victim_look(struct fuzz *fuzz)
{
	uint8_t style = take_u8(&fuzz->input);
	struct iovec piece = {NULL, 0};
	struct receive_request request = {
		.pieces = &piece,
		.source = MATCH_ANY_SOURCE,
		.ignore = UINT64_MAX,
		.flags = FI_COMPLETION | (style & 1 ? FI_MSG : FI_TAGGED) | FI_PEEK,
	};

	switch (style >> 1 & 3) {
	case 0:
		break;
	case 1:
		request.flags |= FI_DISCARD;
		break;
	default:
		victim_claim(fuzz, &request, &piece);
		return;
	}
	(void)messenger_receive(fuzz->messenger, &request);
}

/* Receive or discard a message that was claimed some time ago. */
static void victim_take_claimed(struct fuzz *fuzz)
{
	uint8_t style = take_u8(&fuzz->input);

	for (uint32_t i = 0; i < OPERATIONS_MAX; i++) {
		struct operation *operation = &fuzz->operations[i];
		if (!operation->active || !operation->claims)
			continue;
		struct iovec piece = {operation->buffer, operation->length};
		struct receive_request request = {
			.pieces = &piece,
			.count = 1,
			.context = operation,
			.flags = FI_CLAIM | FI_COMPLETION | (style & 1 ? FI_DISCARD : 0) |
				 (style & 2 ? FI_MSG : FI_TAGGED),
		};
		operation->claims = false;
		require(messenger_receive(fuzz->messenger, &request) == 0, "a claimed message is gone");
		return;
	}
}

static void victim_cancel(struct fuzz *fuzz)
{
	struct operation *operation = &fuzz->operations[take_u8(&fuzz->input) % OPERATIONS_MAX];

	if (operation->active && !operation->send && !operation->claims)
		(void)messenger_cancel(fuzz->messenger, operation);
}

static void victim_progress(struct fuzz *fuzz, uint32_t times)
{
	struct transport *transport = fuzz->messenger->transport;

	for (uint32_t i = 0; i < times; i++) {
		uint64_t before = work_copied();
		uint32_t handled = messenger_progress(fuzz->messenger);
		/* The network has a turn like a ring. */
		require(handled <= TRANSPORT_BURST * (MEMBERS + 1), "a poll does more than its share");
		/* A slot names one chunk. In addition, at most one burst of pieces is sent. */
		require(work_copied() - before <= (uint64_t)TRANSPORT_BURST * (MEMBERS + 2) * CHUNK_LARGE,
			"a poll copies more than its share");
	}
	require(transport->hot_count <= MEMBERS, "a ring is polled twice");
	take_completions(fuzz);
}

/* ---- one input ---- */

static void step(struct fuzz *fuzz)
{
	uint8_t choice = take_u8(&fuzz->input);

	switch (choice % 16) {
	case 0:
	case 1:
	case 2:
	case 3: {
		/* Repeat the same call, to fill rings, tables and queues. */
		struct fuzz_input before = fuzz->input;
		for (uint32_t times = choice & 16 ? 40 : 1; times > 0; times--) {
			fuzz->input = before;
			hostile_push(fuzz);
			if (times % 8 == 0)
				victim_progress(fuzz, 1);
		}
		break;
	}
	case 4:
		hostile_credit(fuzz);
		break;
	case 5:
		hostile_connect(fuzz, (choice & 16) == 0);
		break;
	case 6:
		hostile_scribble(fuzz);
		break;
	case 7:
		if (choice & 16)
			hostile_join(fuzz);
		else
			set_claim(fuzz, choice & 32 ? HOSTILE : VICTIM, take_u8(&fuzz->input),
				  take_u8(&fuzz->input) % 4);
		break;
	case 8:
	case 9:
		victim_send(fuzz);
		break;
	case 10:
	case 11:
		victim_receive(fuzz);
		break;
	case 12:
		if (choice & 16)
			victim_take_claimed(fuzz);
		else
			victim_look(fuzz);
		break;
	case 13:
		if ((choice & 16) == 0)
			victim_cancel(fuzz);
		else if (choice & 32)
			victim_register(fuzz);
		else
			victim_remote(fuzz);
		break;
	case 14:
		if (choice & 64) {
			hostile_network(fuzz);
			break;
		}
		if ((choice & 48) == 48) {
			hostile_identity(fuzz);
			break;
		}
		if (choice & 16) {
			hostile_transfer(fuzz);
			break;
		}
		if (choice & 32) {
			hostile_expose(fuzz);
			break;
		}
		transport_check_peers(fuzz->messenger->transport);
		hostile_ring_bell(fuzz);
		break;
	default:
		victim_progress(fuzz, choice & 16 ? 64 : 1);
		break;
	}
}

/* All members are gone, ourselves included: operations must end, and nothing may stay outstanding. */
static void check_end(struct fuzz *fuzz)
{
	struct messenger *messenger = fuzz->messenger;
	const struct chunk_pool *pool = &messenger->transport->attachments[0].chunks;

	set_claim(fuzz, HOSTILE, fuzz->hostile_epoch + 1000, SLOT_CLAIMED);
	set_claim(fuzz, VICTIM, 77777, SLOT_FREE);
	fail_network(fuzz);
	for (uint32_t round = 0; round < 4; round++) {
		victim_progress(fuzz, 128);
		transport_check_peers(messenger->transport);
	}
	victim_progress(fuzz, 128);
	require(match_is_empty(&messenger->pumping) && match_is_empty(&messenger->awaiting),
		"a send does not end");
	require(messenger->send_queues.count == 0 && messenger->send_queues.bytes == 0,
		"a send waits for ever");
	require(match_is_empty(&messenger->incoming), "a large receive does not end");
	require(messenger->waiting_controls == 0 && messenger->remote_pending == 0,
		"an answer waits for ever");
	require(match_is_empty(&messenger->remote_pumping) && match_is_empty(&messenger->remote_awaiting),
		"a one-sided operation does not end");
	require(messenger->copying == 0 && messenger->single->free_count == REGION_TRANSFERS,
		"a single copy does not end");
	for (uint32_t i = 0; i < CHUNK_CLASSES; i++)
		require(pool->classes[i].free_count == pool->classes[i].count, "a chunk stays outstanding");
	for (uint32_t i = 0; i < OPERATIONS_MAX; i++)
		require(!fuzz->operations[i].active || !fuzz->operations[i].directed,
			"an operation with the hostile member does not end");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz fuzz = {.input = {data, size}, .region = &shared_region};
	struct region_error error;

	if (shared_region.base == NULL)
		reserve_region();
	if (shared_region.fd < 0)
		map_region();
	ASAN_UNPOISON_MEMORY_REGION(shared_region.base, shared_region.bytes);
	format_region();
	require(messenger_open(&fuzz.messenger, fuzz.region, 0, UINT64_C(1) << 40, &error) == 0, error.text);
	require(fuzz.messenger->transport->attachments[0].member->slot == VICTIM,
		"the victim has another slot");
	require(completion_open(&fuzz.completions, 1) == 0, "no memory");
	require(single_copy_open(fuzz.messenger, SINGLE_COPY_AUTO) == 0, "no memory");
	/* Only in the region, because sanitizers do not see the kernel's copies. */
	process_offer_close(&fuzz.messenger->single->offer);
	fuzz.messenger->single->process = false;
	fuzz.messenger->send_completions = &fuzz.completions;
	fuzz.messenger->receive_completions = &fuzz.completions;
	expose(&fuzz);
	ASAN_POISON_MEMORY_REGION(region_section(fuzz.region, UNUSED), SECTION_BYTES);
	hostile_join(&fuzz);
	for (uint32_t steps = 0; fuzz.input.size > 0 && steps < STEPS_MAX; steps++)
		step(&fuzz);
	check_end(&fuzz);
	/* Close without telling the peers, so that closing does not wait for the hostile member to read. */
	fuzz.messenger->transport->attachments[0].member->process = 0;
	messenger_close(fuzz.messenger);
	forget_network();
	completion_close(&fuzz.completions);
	conceal(&fuzz);
	for (uint32_t i = 0; i < OPERATIONS_MAX; i++)
		give_buffer(&fuzz.operations[i]);
	return 0;
}
