/* SPDX-License-Identifier: BSD-3-Clause */
/* regions.c - see regions.h. */
#include "regions.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "transport/region_transport.h"
#include "transport/switch.h"

char said[300];
char files[REGIONS][SHARED_NAME_BYTES];
static int descriptors[REGIONS];
uint64_t heap_bytes;
unsigned char in[LONG];
unsigned char out[LONG];
struct fake_world world;
struct domain domains[FAKE_ENDS];
static struct endpoint endpoints[FAKE_ENDS];

void provider_notice_once(atomic_bool *once, const char *format, ...)
{
	va_list arguments;

	(void)once;
	va_start(arguments, format);
	(void)vsnprintf(said, sizeof(said), format, arguments);
	va_end(arguments);
}

static void open_files(void)
{
	size_t bytes = region_size(MEMBERS, SECTION_BYTES + heap_bytes);

	said[0] = '\0';
	for (uint64_t i = 0; i < REGIONS; i++) {
		const uint64_t id[2] = {7, i + 1};
		shared_name(files[i]);
		descriptors[i] = mkostemp(files[i], O_CLOEXEC);
		assert_true(descriptors[i] >= 0);
		assert_int_equal(posix_fallocate(descriptors[i], 0, (off_t)bytes), 0);
		void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptors[i], 0);
		assert_ptr_not_equal(base, MAP_FAILED);
		assert_int_equal(region_format_heaps(base, bytes, MEMBERS, SECTION_BYTES + heap_bytes,
						     heap_bytes, id),
				 0);
		assert_int_equal(munmap(base, bytes), 0);
	}
	memset(&world, 0, sizeof(world));
	memset(domains, 0, sizeof(domains));
	memset(endpoints, 0, sizeof(endpoints));
}

static void close_files(void)
{
	for (uint32_t i = 0; i < REGIONS; i++) {
		assert_int_equal(close(descriptors[i]), 0);
		assert_int_equal(unlink(files[i]), 0);
	}
}

/* `list` has the digits of the endpoint's regions, the first region first: "21". */
void open_endpoint(uint8_t index, const char *list)
{
	struct far_node *far = &world.nodes[index];
	struct domain *domain = &domains[index];
	struct region_error error;
	char name[96];

	for (; *list != '\0'; list++) {
		struct region **region = &domain->regions[domain->region_count++];
		(void)snprintf(name, sizeof(name), "file:%s", files[*list - '1']);
		assert_int_equal(region_attach(name, region, &error), 0);
		domain->members += (*region)->members;
	}
	domain->network = NETWORK_OPEN;
	fake_end_open(world.ends, index);
	far->end = &world.ends[index];
	far->region = domain->regions[0];
	node_open(&far->node, far->region);
	for (uint32_t i = 1; i < domain->region_count; i++)
		assert_int_equal(messenger_join(far->node.messenger, domain->regions[i], 0, &error), 0);
	assert_int_equal(network_open(far->node.messenger->transport, &far->end->core, &far->directory), 0);
	endpoints[index].messenger = far->node.messenger;
	domain->endpoints = &endpoints[index];
}

void open_endpoints(const char *of_a, const char *of_b, const char *of_c)
{
	open_files();
	open_endpoint(0, of_a);
	open_endpoint(1, of_b);
	if (*of_c != '\0')
		open_endpoint(2, of_c);
}

void close_endpoints(void)
{
	fake_close(&world);
	for (uint32_t i = 0; i < FAKE_ENDS; i++)
		for (uint32_t k = 1; k < domains[i].region_count; k++)
			region_detach(domains[i].regions[k]);
	close_files();
}

struct transport *transport_of(int index)
{
	return fake_transport(&world.nodes[index]);
}

struct member *member_in(int index, char region)
{
	for (uint32_t i = 0; i < transport_of(index)->attachment_count; i++)
		if (transport_of(index)->attachments[i].region->id[1] == (uint64_t)(region - '0'))
			return transport_of(index)->attachments[i].member;
	fail_msg("endpoint %d is not in region %c", index, region);
	return NULL;
}

struct address address_of(int index)
{
	const struct member *first = transport_of(index)->attachments[0].member;
	const struct core_name *name = network_name(transport_of(index)->network);
	struct address address = {
		.version = ADDRESS_FORMAT_VERSION,
		.slot = (uint16_t)first->slot,
		.epoch = first->epoch,
		.nonce = first->nonce,
		.region = {first->region->id[0], first->region->id[1]},
		.core = name->provider,
		.core_length = name->length,
		.core_flags = name->flags,
	};

	memcpy(address.core_name, name->bytes, name->length);
	return address;
}

/* `whom` as `at` knows it by its address, as in an address vector. */
struct msg_peer *meet(int at, int whom)
{
	struct address address = address_of(whom);
	uint32_t epoch = 0;
	uint32_t source = domain_resolve(&domains[at], &address, &epoch);
	struct peer *peer = NULL;

	if (source == RESOLVE_NONE) {
		uint32_t index = directory_add(&world.nodes[at].directory, address.nonce,
					       network_name(transport_of(whom)->network));
		assert_int_not_equal(index, DIRECTORY_NONE);
		peer = network_meet(transport_of(at), transport_of(at)->members + index);
	} else {
		peer = transport_meet(transport_of(at), source, epoch, address.nonce);
		if (peer == NULL)
			peer = transport_of(at)->peers[source];
	}
	assert_non_null(peer);
	return (struct msg_peer *)(void *)peer;
}

/* The region through which `at` reaches `whom`, or '0' for the network. */
char region_between(int at, int whom)
{
	const struct peer *peer = &meet(at, whom)->peer;

	if (peer->network != NULL)
		return '0';
	/* In this region too, the peer is `whom` itself. */
	const struct member *member = member_in(whom, (char)('0' + peer->attachment->region->id[1]));
	assert_int_equal(peer->slot, member->slot);
	assert_int_equal(peer->epoch, member->epoch);
	assert_int_equal(peer->source, peer->attachment->base + member->slot);
	return (char)('0' + peer->attachment->region->id[1]);
}

void talk(int from, int to, size_t length, uint64_t seed)
{
	uint32_t source = meet(to, from)->peer.source;

	fake_talk(&world, &world.nodes[from], meet(from, to), &world.nodes[to], source, length, seed);
}

/* Send messages of every protocol in both directions. */
void talk_of_all(int one, int other)
{
	static const size_t sizes[] = {0, 8, 300, 4096, 16384, 100000, LONG};

	for (uint64_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		talk(one, other, sizes[i], 100 + i);
		talk(other, one, sizes[i], 200 + i);
	}
}

/* Make progress until no peer switches or waits to switch. */
void settle_switches(void)
{
	enum { GUARD_ROUNDS = 12000 }; /* at least a minute, only against hanging */
	const struct timespec pause = {.tv_nsec = 5000000};
	uint32_t waiting = 1;

	for (int round = 0; waiting > 0; round++) {
		waiting = 0;
		for (int i = 0; i < (int)FAKE_ENDS && world.nodes[i].node.messenger != NULL; i++) {
			transport_check_peers(transport_of(i));
			transport_begin_switches(transport_of(i));
		}
		fake_settle(&world);
		for (int i = 0; i < (int)FAKE_ENDS && world.nodes[i].node.messenger != NULL; i++)
			waiting += transport_of(i)->switches;
		assert_true(round < GUARD_ROUNDS);
		(void)nanosleep(&pause, NULL);
	}
}

struct section_header *section_of(int index, char region)
{
	const struct member *member = member_in(index, region);

	return section_header(member->region, member->slot);
}

void assert_routes(int one, int other, bool by_network)
{
	assert_int_equal(meet(one, other)->peer.network != NULL, by_network);
	assert_int_equal(meet(other, one)->peer.network != NULL, by_network);
}

void forge(int who, int whom, char region)
{
	struct section_header *header = section_of(who, region);
	const struct member *first = transport_of(whom)->attachments[0].member;

	shared_store_u64(&header->nonce, first->nonce);
	shared_store_u64(&header->home[0], first->region->id[0]);
	shared_store_u64(&header->home[1], first->region->id[1]);
	shared_store_u32(&header->home_slot, first->slot);
	shared_store_u32(&header->home_epoch, first->epoch);
}

void cut_file(char region)
{
	assert_int_equal(ftruncate(descriptors[region - '1'], 0), 0);
}
