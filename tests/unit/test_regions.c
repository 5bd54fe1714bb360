/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Endpoints in several regions: which of those that two of them share is used, that one of them failing
 * leaves the others alone, and that nobody is taken for another.
 */
#include "fake_core.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "api/provider.h"
#include "path/move.h"
#include "path/region_path.h"
#include "region/identity.h"

#define REGIONS 3U
#define MEMBERS 5U
#define SECTION_BYTES (512U * 1024U)
#define LONG 300000U /* more than goes without an answer */

/* What place.c says to the user. */
static char said[300];

void provider_say_once(atomic_bool *once, const char *format, ...)
{
	va_list arguments;

	(void)once;
	va_start(arguments, format);
	(void)vsnprintf(said, sizeof(said), format, arguments);
	va_end(arguments);
}

/* ---- regions in files, and endpoints with a mapping of their own of each that they are in ---- */

static char files[REGIONS][40];
static int descriptors[REGIONS];
static uint64_t heap_bytes; /* of each section beside SECTION_BYTES */
static unsigned char in[LONG];
static unsigned char out[LONG];
static struct fake_world world;
static struct domain domains[FAKE_ENDS];
static struct endpoint endpoints[FAKE_ENDS];

static void open_files(void)
{
	size_t bytes = region_size(MEMBERS, SECTION_BYTES + heap_bytes);

	said[0] = '\0';
	for (uint64_t i = 0; i < REGIONS; i++) {
		const uint64_t id[2] = {7, i + 1};
		(void)snprintf(files[i], sizeof(files[i]), "/dev/shm/vicinal-regions-XXXXXX");
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

/* One whose regions are listed, by their digits, the first first: "21". */
static void open_endpoint(uint8_t index, const char *list)
{
	struct far_node *far = &world.nodes[index];
	struct domain *domain = &domains[index];
	struct region_error error;
	char name[64];

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
	assert_int_equal(network_open(far->node.messenger->path, &far->end->core, &far->directory), 0);
	endpoints[index].messenger = far->node.messenger;
	domain->endpoints = &endpoints[index];
}

static void open_endpoints(const char *of_a, const char *of_b, const char *of_c)
{
	open_files();
	open_endpoint(0, of_a);
	open_endpoint(1, of_b);
	open_endpoint(2, of_c);
}

static void close_endpoints(void)
{
	fake_close(&world);
	for (uint32_t i = 0; i < FAKE_ENDS; i++)
		for (uint32_t k = 1; k < domains[i].region_count; k++)
			region_detach(domains[i].regions[k]);
	close_files();
}

enum { A, B, C };

static struct path *path_of(int index)
{
	return fake_path(&world.nodes[index]);
}

static struct member *member_in(int index, char region)
{
	for (uint32_t i = 0; i < path_of(index)->port_count; i++)
		if (path_of(index)->ports[i].region->id[1] == (uint64_t)(region - '0'))
			return path_of(index)->ports[i].member;
	fail_msg("endpoint %d is not in region %c", index, region);
	return NULL;
}

static struct address address_of(int index)
{
	const struct member *first = path_of(index)->ports[0].member;
	const struct core_name *name = network_name(path_of(index)->network);
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

/* `whom` as `at` knows it by its address, as an address vector has it. */
static struct correspondent *meet(int at, int whom)
{
	struct address address = address_of(whom);
	uint32_t epoch = 0;
	uint32_t source = domain_place(&domains[at], &address, &epoch);
	struct peer *peer = NULL;

	if (source == PLACE_NONE) {
		uint32_t place = directory_add(&world.nodes[at].directory, address.nonce,
					       network_name(path_of(whom)->network));
		assert_int_not_equal(place, DIRECTORY_NONE);
		peer = network_meet(path_of(at), path_of(at)->members + place);
	} else {
		peer = path_meet(path_of(at), source, epoch, address.nonce);
		if (peer == NULL)
			peer = path_of(at)->peers[source];
	}
	assert_non_null(peer);
	return (struct correspondent *)(void *)peer;
}

/* By which region they reach each other, as `at` has it; 0: over the network. */
static char region_between(int at, int whom)
{
	const struct peer *peer = &meet(at, whom)->peer;

	if (peer->network != NULL)
		return '0';
	/* It is that very member, there too. */
	const struct member *member = member_in(whom, (char)('0' + peer->port->region->id[1]));
	assert_int_equal(peer->slot, member->slot);
	assert_int_equal(peer->epoch, member->epoch);
	assert_int_equal(peer->source, peer->port->base + member->slot);
	return (char)('0' + peer->port->region->id[1]);
}

static void talk(int from, int to, size_t length, uint64_t seed)
{
	memset(in, 0, length);
	fill_bytes(out, length, seed);
	assert_int_equal(fake_receive(&world.nodes[to], meet(to, from)->peer.source, in, length, seed), 0);
	assert_int_equal(fake_send(&world.nodes[from], meet(from, to), out, length, seed), 0);
	fake_settle(&world);
	assert_int_equal(fake_next(&world.nodes[from].node.sends).error, 0);
	struct completion got = fake_next(&world.nodes[to].node.receives);
	assert_int_equal(got.error, 0);
	assert_int_equal(got.length, length);
	assert_int_equal((uint32_t)got.source, meet(to, from)->peer.source);
	assert_bytes(in, length, seed);
}

/* By every protocol, both ways. */
static void talk_of_all(int one, int other)
{
	static const size_t sizes[] = {0, 8, 300, 4096, 16384, 100000, LONG};

	for (uint64_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		talk(one, other, sizes[i], 100 + i);
		talk(other, one, sizes[i], 200 + i);
	}
}

/* Until nobody moves to another way, or waits to. */
static void settle_moves(void)
{
	const struct timespec pause = {.tv_nsec = 5000000};
	uint32_t waiting = 1;

	for (int round = 0; waiting > 0; round++) {
		waiting = 0;
		for (int i = 0; i < (int)FAKE_ENDS; i++) {
			path_check_peers(path_of(i));
			path_begin_moves(path_of(i));
		}
		fake_settle(&world);
		for (int i = 0; i < (int)FAKE_ENDS; i++)
			waiting += path_of(i)->moves;
		assert_true(round < 1000);
		(void)nanosleep(&pause, NULL);
	}
}

/* ---- whom one meets where ---- */

static void test_each_pair_by_what_it_shares(void **state)
{
	(void)state;
	open_endpoints("1", "12", "2");
	assert_int_equal(region_between(A, B), '1');
	assert_int_equal(region_between(B, A), '1');
	assert_int_equal(region_between(B, C), '2');
	assert_int_equal(region_between(C, B), '2');
	assert_int_equal(region_between(A, C), '0');
	assert_int_equal(region_between(C, A), '0');
	for (int one = A; one <= C; one++)
		for (int other = A; other <= C; other++)
			talk_of_all(one, other);
	/* What each region says of it, for people. */
	for (int i = A; i <= C; i++)
		path_publish_counts(path_of(i));
	const struct region *first = domains[A].regions[0];
	const struct region *second = domains[C].regions[0];
	assert_true(
		shared_load_u64(&section_connection(first, member_in(A, '1')->slot, member_in(B, '1')->slot)
					 ->messages) > 0);
	assert_true(
		shared_load_u64(&section_connection(second, member_in(C, '2')->slot, member_in(B, '2')->slot)
					 ->messages) > 0);
	assert_true(shared_load_u64(&section_network(first, member_in(A, '1')->slot, 0)->messages) > 0);
	close_endpoints();
}

/* One that takes from whom it comes: in order of each sender, whichever way that is. */
static void test_wildcards_over_all_ways(void **state)
{
	uint64_t next[FAKE_ENDS] = {0};

	(void)state;
	open_endpoints("12", "13", "2");
	assert_int_equal(region_between(A, B), '1');
	assert_int_equal(region_between(A, C), '2');
	assert_int_equal(region_between(B, C), '0');
	for (uint64_t i = 0; i < 40; i++)
		for (int from = A; from <= C; from += 2) {
			uint64_t word = i;
			assert_int_equal(fake_send(&world.nodes[from], meet(from, B), &word, 8, 5), 0);
			fake_settle(&world);
		}
	for (int i = 0; i < 80; i++) {
		uint64_t word = 0;
		assert_int_equal(fake_receive(&world.nodes[B], MATCH_ANY_SOURCE, &word, 8, 5), 0);
		struct completion got = fake_next(&world.nodes[B].node.receives);
		int from = (uint32_t)got.source == meet(B, A)->peer.source ? A : C;
		assert_int_equal((uint32_t)got.source, meet(B, from)->peer.source);
		assert_int_equal(word, next[from]++);
	}
	assert_int_equal(next[A], 40);
	assert_int_equal(next[C], 40);
	close_endpoints();
}

static bool has(const char *list, char region)
{
	return strchr(list, region) != NULL;
}

/* What both must come to, from their lists alone: see place.c. */
static char expected_between(const char *one, const char *other)
{
	char best = '0';
	int best_homes = -1;

	for (const char *region = "123"; *region != '\0'; region++) {
		int homes = (*one == *region) + (*other == *region);
		if (has(one, *region) && has(other, *region) && homes > best_homes) {
			best = *region;
			best_homes = homes;
		}
	}
	return best;
}

static void test_both_ends_choose_the_same(void **state)
{
	static const char *const lists[] = {"1",  "2",   "3",   "12",  "21",  "13",  "31", "23",
					    "32", "123", "132", "213", "231", "312", "321"};
	const size_t count = sizeof(lists) / sizeof(lists[0]);

	(void)state;
	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; k < count; k++) {
			char expected = expected_between(lists[i], lists[k]);
			open_endpoints(lists[i], lists[k], "3");
			assert_int_equal(region_between(A, B), expected);
			assert_int_equal(region_between(B, A), expected);
			/* To itself by the one that both have first. */
			assert_int_equal(region_between(A, A), lists[i][0]);
			close_endpoints();
		}
}

/* It is the same peer before and after its address is known. */
static void test_a_stranger_is_told_of_later(void **state)
{
	static const char *const lists[][2] = {{"12", "21"}, {"1", "21"}, {"12", "2"}, {"12", "12"}};

	(void)state;
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		uint64_t word = 99;
		open_endpoints(lists[i][0], lists[i][1], "3");
		assert_int_equal(fake_send(&world.nodes[B], meet(B, A), &word, 8, 5), 0);
		fake_settle(&world);
		word = 0;
		assert_int_equal(fake_receive(&world.nodes[A], MATCH_ANY_SOURCE, &word, 8, 5), 0);
		struct completion got = fake_next(&world.nodes[A].node.receives);
		assert_int_equal(word, 99);
		const struct peer *stranger = path_of(A)->peers[(uint32_t)got.source];
		assert_ptr_equal(stranger, &meet(A, B)->peer);
		assert_int_equal(correspondent_source(meet(A, B)), got.source);
		talk_of_all(A, B);
		close_endpoints();
	}
}

static void test_a_region_that_is_full(void **state)
{
	struct member *members[MEMBERS];
	struct region *region = NULL;
	struct region_error error;
	char name[64];

	(void)state;
	open_endpoints("1", "1", "3");
	(void)snprintf(name, sizeof(name), "file:%s", files[1]);
	assert_int_equal(region_attach(name, &region, &error), 0);
	for (uint32_t i = 0; i < MEMBERS; i++)
		assert_int_equal(member_join(region, i, WORLD_TIMEOUT, &members[i], &error), 0);
	assert_int_equal(messenger_join(world.nodes[C].node.messenger, region, 0, &error), -ENOSPC);
	assert_non_null(strstr(error.text, "is full"));
	for (uint32_t i = 0; i < MEMBERS; i++)
		member_leave(members[i]);
	/* All is as before. */
	assert_int_equal(path_of(C)->port_count, 1);
	assert_int_equal(path_of(C)->members, MEMBERS);
	talk_of_all(C, C);
	region_detach(region);
	close_endpoints();
}

static void test_no_more_regions_than_there_is_room_for(void **state)
{
	struct region_error error;

	(void)state;
	open_endpoints("123", "1", "3");
	/* One may be joined twice by who does not look: it is another member there. */
	assert_int_equal(messenger_join(world.nodes[A].node.messenger, domains[A].regions[1], 0, &error), 0);
	assert_int_equal(messenger_join(world.nodes[A].node.messenger, domains[A].regions[2], 0, &error),
			 -E2BIG);
	assert_non_null(strstr(error.text, "4 regions and no more"));
	close_endpoints();
}

/* ---- identities that cannot be, or are another's ---- */

static struct section_header *section_of(int index, char region)
{
	const struct member *member = member_in(index, region);

	return section_header(member->region, member->slot);
}

/* `who` says in `region` that it is `whom`. */
static void forge(int who, int whom, char region)
{
	struct section_header *header = section_of(who, region);
	const struct member *first = path_of(whom)->ports[0].member;

	shared_store_u64(&header->nonce, first->nonce);
	shared_store_u64(&header->home[0], first->region->id[0]);
	shared_store_u64(&header->home[1], first->region->id[1]);
	shared_store_u32(&header->home_slot, first->slot);
	shared_store_u32(&header->home_epoch, first->epoch);
}

static void test_two_that_say_they_are_one(void **state)
{
	(void)state;
	open_endpoints("2", "12", "2");
	forge(C, B, '2');
	assert_int_equal(region_between(A, B), '0');
	assert_non_null(strstr(said, "one and the same endpoint"));
	assert_non_null(strstr(said, files[1]));
	/* Neither does the one that it was said of use the region for others. */
	said[0] = '\0';
	assert_int_equal(region_between(B, A), '0');
	assert_non_null(strstr(said, "one and the same endpoint"));
	talk_of_all(A, B);
	close_endpoints();
}

/* Where both are at home nobody can pose as another in a section of its own. */
static void test_a_liar_where_two_are_not_at_home(void **state)
{
	(void)state;
	open_endpoints("32", "312", "2");
	forge(C, B, '2');
	assert_int_equal(region_between(A, B), '3');
	assert_int_equal(region_between(B, A), '3');
	close_endpoints();
	/* Not in the region that the address names either: slot and epoch there are the liar's own. */
	open_endpoints("2", "1", "12");
	forge(C, B, '1');
	assert_int_equal(region_between(A, B), '0');
	close_endpoints();
}

static void test_each_word_must_agree(void **state)
{
	(void)state;
	open_endpoints("2", "12", "2");
	struct section_header *header = section_of(B, '2');
	shared_u64 *words[] = {&header->nonce, &header->home[0], &header->home[1]};
	shared_u32 *halves[] = {&header->home_slot, &header->home_epoch};
	shared_u64 *claim = &region_slot(domains[A].regions[0], member_in(B, '2')->slot)->claim;
	struct address address = address_of(B);
	uint32_t epoch = 0;

	for (int i = 0; i < 3; i++) {
		uint64_t word = shared_load_u64(words[i]);
		shared_store_u64(words[i], word + 1);
		assert_int_equal(domain_place(&domains[A], &address, &epoch), PLACE_NONE);
		shared_store_u64(words[i], word);
	}
	for (int i = 0; i < 2; i++) {
		uint32_t half = shared_load_u32(halves[i]);
		shared_store_u32(halves[i], half + 1);
		assert_int_equal(domain_place(&domains[A], &address, &epoch), PLACE_NONE);
		shared_store_u32(halves[i], half);
	}
	/* Nobody is in the slot, or somebody who joins just now. */
	uint64_t whose = shared_load_u64(claim);
	shared_store_u64(claim, 0);
	assert_int_equal(domain_place(&domains[A], &address, &epoch), PLACE_NONE);
	shared_store_u64(claim, (whose & ~UINT64_C(3)) | SLOT_CLAIMED);
	assert_int_equal(domain_place(&domains[A], &address, &epoch), PLACE_NONE);
	shared_store_u64(claim, whose);
	/* An address without an epoch is nobody's, and a section of one that is at home says 0. */
	struct address none = address;
	none.epoch = 0;
	shared_store_u32(&header->home_epoch, 0);
	assert_int_equal(domain_place(&domains[A], &none, &epoch), PLACE_NONE);
	shared_store_u32(&header->home_epoch, address.epoch);
	assert_int_equal(domain_place(&domains[A], &address, &epoch), member_in(B, '2')->slot);
	assert_int_equal(epoch, member_in(B, '2')->epoch);
	talk_of_all(A, B);
	close_endpoints();
}

/* Whatever stands there: a look at each slot, and no answer but the three. */
static void test_words_at_random(void **state)
{
	uint64_t random = 1;

	(void)state;
	open_endpoints("2", "12", "2");
	struct address address = address_of(B);
	struct section_header *header = section_of(C, '2');
	for (uint32_t i = 0; i < 20000; i++) {
		uint32_t epoch = 0;
		shared_store_u64(&header->nonce,
				 random_below(&random, 2) ? address.nonce : next_random(&random));
		shared_store_u64(&header->home[0], random_below(&random, 2) ? 7 : next_random(&random));
		shared_store_u64(&header->home[1], random_below(&random, 3));
		shared_store_u32(&header->home_slot, (uint32_t)random_below(&random, MEMBERS + 1));
		shared_store_u32(&header->home_epoch, (uint32_t)random_below(&random, 3));
		uint32_t place = domain_place(&domains[A], &address, &epoch);
		assert_true(place == PLACE_NONE || place == member_in(B, '2')->slot);
	}
	close_endpoints();
}

/* ---- one of the regions is of no use any more, or is not to be used ---- */

static void assert_ways(int one, int other, bool by_network)
{
	assert_int_equal(meet(one, other)->peer.network != NULL, by_network);
	assert_int_equal(meet(other, one)->peer.network != NULL, by_network);
}

static void test_the_others_go_on_when_a_file_is_cut(void **state)
{
	(void)state;
	for (int which = 0; which < 2; which++) {
		open_endpoints("12", "1", "2");
		talk(A, B, 8, 1);
		talk(A, C, 8, 2);
		/* Half way: one of each. */
		assert_int_equal(fake_receive(&world.nodes[A], meet(A, B)->peer.source, in, LONG, 3), 0);
		assert_int_equal(fake_receive(&world.nodes[A], meet(A, C)->peer.source, in, LONG, 4), 0);
		assert_int_equal(ftruncate(descriptors[which], 0), 0);
		settle_moves();
		int gone = which == 0 ? B : C;
		int stays = which == 0 ? C : B;
		struct completion failed = fake_next(&world.nodes[A].node.receives);
		assert_int_equal(failed.error, ECONNABORTED);
		assert_true(completion_is_empty(&world.nodes[A].node.receives));
		assert_int_equal(
			fake_send(&world.nodes[stays], meet(stays, A), out, LONG, which == 0 ? 4 : 3), 0);
		fake_settle(&world);
		assert_int_equal(fake_next(&world.nodes[A].node.receives).error, 0);
		assert_int_equal(fake_next(&world.nodes[stays].node.sends).error, 0);
		assert_ways(A, stays, false);
		assert_int_equal(meet(A, gone)->peer.renewal, RENEWAL_DONE);
		assert_int_equal(meet(gone, A)->peer.renewal, RENEWAL_DONE);
		assert_ways(A, gone, true);
		assert_int_equal(meet(A, stays)->peer.renewal, RENEWAL_NONE);
		/* Where nothing was under way the first who asks is told. */
		assert_int_equal(fake_send(&world.nodes[gone], meet(gone, A), out, 8, 9), -ECONNABORTED);
		talk_of_all(A, B);
		talk_of_all(A, C);
		close_endpoints();
	}
}

/* Our slot in one of them was taken by another, while we were paused. */
static void test_the_others_go_on_when_a_slot_is_lost(void **state)
{
	(void)state;
	open_endpoints("12", "1", "2");
	talk(A, B, 8, 1);
	talk(A, C, 8, 2);
	const struct member *lost = member_in(A, '2');
	shared_store_u64(&region_slot(lost->region, lost->slot)->claim,
			 (uint64_t)(lost->epoch + 1) << 32 | SLOT_CLAIMED);
	settle_moves();
	assert_true(path_of(A)->ports[1].evicted);
	assert_false(path_of(A)->ports[0].evicted);
	assert_ways(A, B, false);
	talk_of_all(A, B);
	/* The other found out as well, or is told; both go on. */
	assert_int_equal(path_of(A)->peers[MEMBERS + member_in(C, '2')->slot]->renewal, RENEWAL_DONE);
	close_endpoints();
}

static void test_a_wish_is_of_one_region(void **state)
{
	(void)state;
	open_endpoints("12", "1", "2");
	talk_of_all(A, B);
	talk_of_all(A, C);
	const struct member *moved = member_in(A, '2');
	shared_store_u64(&region_slot(moved->region, moved->slot)->way, (uint64_t)moved->epoch << 32 | 1);
	for (int round = 0; round < 20; round++)
		settle_moves();
	assert_ways(A, B, false);
	assert_ways(A, C, true);
	talk_of_all(A, B);
	talk_of_all(A, C);
	shared_store_u64(&region_slot(moved->region, moved->slot)->way, 0);
	for (int round = 0; round < 20; round++)
		settle_moves();
	assert_ways(A, C, false);
	talk_of_all(A, C);
	close_endpoints();
}

static void test_a_member_that_dies(void **state)
{
	(void)state;
	open_endpoints("12", "1", "2");
	talk(A, B, 8, 1);
	talk(A, C, 8, 2);
	uint32_t of_c = meet(A, C)->peer.source;
	assert_int_equal(fake_receive(&world.nodes[A], of_c, in, 8, 3), 0);
	node_die(&world.nodes[C].node);
	for (int round = 0; round < 2; round++) {
		path_check_peers(path_of(A));
		(void)messenger_progress(world.nodes[A].node.messenger);
	}
	assert_int_equal(fake_next(&world.nodes[A].node.receives).error, ECONNRESET);
	assert_int_equal(path_of(A)->peers[of_c]->state, PEER_FAILED);
	talk_of_all(A, B);
	close_endpoints();
}

/* In a forked child all of them are its parent's. */
static void test_all_are_lost_in_a_child(void **state)
{
	(void)state;
	open_endpoints("12", "1", "2");
	talk(A, B, 8, 1);
	talk(A, C, 8, 2);
	path_lose(path_of(A));
	(void)messenger_progress(world.nodes[A].node.messenger);
	for (uint32_t i = 0; i < 2; i++) {
		assert_true(path_of(A)->ports[i].evicted);
		assert_int_equal(path_of(A)->ports[i].member->lock_fd, -1);
	}
	assert_int_equal(path_of(A)->peers[member_in(B, '1')->slot]->state, PEER_FAILED);
	assert_int_equal(path_of(A)->peers[MEMBERS + member_in(C, '2')->slot]->state, PEER_FAILED);
	/* The core is the parent's as well. */
	assert_false(world.ends[A].closed);
	world.ends[A].closed = true;
	close_endpoints();
}

/* ---- the heap ---- */

/* Not mapped to those of other regions: what lies there reaches them all the same, and is copied twice. */
static void test_the_heap_is_in_the_first_region(void **state)
{
	(void)state;
	heap_bytes = (uint64_t)1 << 20;
	open_endpoints("12", "1", "2");
	for (int i = A; i <= C; i++)
		assert_int_equal(single_copy_open(world.nodes[i].node.messenger, SINGLE_COPY_ON), 0);
	struct heap *heap = path_of(A)->heap;
	assert_non_null(heap);
	unsigned char *bytes = heap_allocate(heap, LONG, 64, false);
	assert_non_null(bytes);
	assert_true((size_t)(bytes - domains[A].regions[0]->base) < domains[A].regions[0]->bytes);
	assert_true(meet(A, B)->peer.mapped);
	assert_false(meet(A, C)->peer.mapped);
	fill_bytes(bytes, LONG, 5);
	for (int to = B; to <= C; to++) {
		memset(in, 0, LONG);
		assert_int_equal(fake_receive(&world.nodes[to], meet(to, A)->peer.source, in, LONG, 6), 0);
		assert_int_equal(fake_send(&world.nodes[A], meet(A, to), bytes, LONG, 6), 0);
		fake_settle(&world);
		assert_int_equal(fake_next(&world.nodes[A].node.sends).error, 0);
		assert_int_equal(fake_next(&world.nodes[to].node.receives).error, 0);
		assert_bytes(in, LONG, 5);
		talk_of_all(to, A);
	}
	/* It is the first region's: nothing of it goes with the second. */
	assert_int_equal(ftruncate(descriptors[1], 0), 0);
	settle_moves();
	assert_true(path_of(A)->ports[1].cut);
	assert_true(heap_release(bytes));
	bytes = heap_allocate(heap, LONG, 64, false);
	assert_non_null(bytes);
	assert_true(heap_release(bytes));
	close_endpoints();
	heap_bytes = 0;
}

/* ---- polling and sleeping ---- */

/* Nobody looks but in polls, of which one in 64 hears the doorbells of one region. */
static void test_polls_hear_each_region(void **state)
{
	uint64_t words[FAKE_ENDS] = {0, 1, 2};
	uint64_t got[FAKE_ENDS] = {0};

	(void)state;
	open_endpoints("12", "1", "2");
	for (int from = B; from <= C; from++) {
		assert_int_equal(fake_receive(&world.nodes[A], meet(A, from)->peer.source, &got[from], 8, 7),
				 0);
		assert_int_equal(fake_send(&world.nodes[from], meet(from, A), &words[from], 8, 7), 0);
	}
	for (int poll = 0; poll < 3 * 64; poll++)
		(void)messenger_progress(world.nodes[A].node.messenger);
	assert_int_equal(got[B], 1);
	assert_int_equal(got[C], 2);
	close_endpoints();
}

static void test_a_sleep_ends_by_each_region(void **state)
{
	struct sleep_watch watch;

	(void)state;
	open_endpoints("12", "1", "2");
	talk(B, A, 8, 1);
	talk(C, A, 8, 2);
	path_sleep_begin(path_of(A));
	(void)path_look(path_of(A));
	for (int from = B; from <= C; from++) {
		sleep_watch_open(&watch);
		(void)path_sleep_watch(path_of(A), &watch);
		if (sleep_waits_on_many())
			assert_int_equal(watch.count, 2 * (1 + MEMBERS));
		assert_int_equal(sleep_until(&watch, monotonic_now() + 1000000), SLEEP_ELAPSED);
		uint64_t word = 1;
		assert_int_equal(fake_send(&world.nodes[from], meet(from, A), &word, 8, 7), 0);
		if (sleep_waits_on_many())
			assert_int_equal(sleep_until(&watch, monotonic_now() + UINT64_C(5000000000)),
					 SLEEP_RUNG);
		assert_int_equal(path_look(path_of(A)), 0);
	}
	path_sleep_end(path_of(A));
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(shared_load_u32(&section_header(path_of(A)->ports[i].region,
								 path_of(A)->ports[i].member->slot)
							  ->sleeping),
				 0);
	fake_settle(&world);
	talk_of_all(A, B);
	talk_of_all(A, C);
	close_endpoints();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_pair_by_what_it_shares),
		cmocka_unit_test(test_wildcards_over_all_ways),
		cmocka_unit_test(test_both_ends_choose_the_same),
		cmocka_unit_test(test_a_stranger_is_told_of_later),
		cmocka_unit_test(test_a_region_that_is_full),
		cmocka_unit_test(test_no_more_regions_than_there_is_room_for),
		cmocka_unit_test(test_two_that_say_they_are_one),
		cmocka_unit_test(test_a_liar_where_two_are_not_at_home),
		cmocka_unit_test(test_each_word_must_agree),
		cmocka_unit_test(test_words_at_random),
		cmocka_unit_test(test_the_others_go_on_when_a_file_is_cut),
		cmocka_unit_test(test_the_others_go_on_when_a_slot_is_lost),
		cmocka_unit_test(test_a_wish_is_of_one_region),
		cmocka_unit_test(test_a_member_that_dies),
		cmocka_unit_test(test_all_are_lost_in_a_child),
		cmocka_unit_test(test_the_heap_is_in_the_first_region),
		cmocka_unit_test(test_polls_hear_each_region),
		cmocka_unit_test(test_a_sleep_ends_by_each_region),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
