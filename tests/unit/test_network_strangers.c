/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers that the application has not inserted, and their costs: directory entries, descriptors, and datagrams
 * to the addresses that they name. All sockets are of this process, at loopback addresses.
 */
#include "fake_core.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <unistd.h>

#define HELLOS 400U
#define SECOND UINT64_C(1000000000)

static struct fake_world world;
static struct far_node *b = &world.nodes[1];
/* A socket at the address that the strangers name. */
static int named;
static struct sockaddr_in named_at;

static struct network *network_of_b(void)
{
	return fake_transport(b)->network;
}

static struct sockaddr_in address_of(int socket)
{
	struct sockaddr_in address;
	socklen_t length = sizeof(address);

	assert_int_equal(getsockname(socket, (struct sockaddr *)&address, &length), 0);
	return address;
}

static int open_at_loopback(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int opened = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	assert_true(opened >= 0);
	assert_int_equal(bind(opened, (const struct sockaddr *)&address, sizeof(address)), 0);
	return opened;
}

/* b's core has an internet address, so b has a keepalive socket. */
static int setup(void **state)
{
	(void)state;
	fake_open(&world);
	named = open_at_loopback();
	named_at = address_of(named);
	int free_port = open_at_loopback();
	struct sockaddr_in own = address_of(free_port);
	assert_int_equal(close(free_port), 0);
	struct core_name *name = &network_of_b()->core->name;
	*name = (struct core_name){.provider = FAKE_PROVIDER, .length = sizeof(own)};
	memcpy(name->bytes, &own, sizeof(own));
	network_keepalive_open(network_of_b());
	assert_int_equal(name->flags, CORE_NAME_KEEPALIVE);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fake_close(&world);
	assert_int_equal(close(named), 0);
	return 0;
}

static struct core_name named_core(void)
{
	struct core_name name = {
		.provider = FAKE_PROVIDER, .length = sizeof(named_at), .flags = CORE_NAME_KEEPALIVE};

	memcpy(name.bytes, &named_at, sizeof(named_at));
	return name;
}

static void deliver(enum frame_kind kind, uint64_t nonce)
{
	struct {
		struct frame_header header;
		struct frame_hello hello;
	} frame = {
		.header = {.magic = FRAME_MAGIC,
			   .version = FRAME_VERSION,
			   .kind = (uint8_t)kind,
			   .to = fake_transport(b)->attachments[0].member->nonce,
			   .from = nonce},
		.hello = {.provider = FAKE_PROVIDER,
			  .length = sizeof(named_at),
			  .flags = CORE_NAME_KEEPALIVE},
	};

	memcpy(frame.hello.name, &named_at, sizeof(named_at));
	assert_true(fake_deliver(b->end, &frame, kind == FRAME_HELLO ? sizeof(frame) : sizeof(frame.header)));
	fake_settle(&world);
}

static uint32_t count_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	uint32_t count = 0;

	assert_non_null(directory);
	while (readdir(directory) != NULL)
		count++;
	assert_int_equal(closedir(directory), 0);
	return count;
}

/* The number of datagrams to the address that the strangers named. */
static uint32_t count_datagrams(void)
{
	char bytes[64];
	uint32_t count = 0;

	while (recv(named, bytes, sizeof(bytes), 0) >= 0)
		count++;
	return count;
}

/* Time passes without a message from any peer. */
static void check_for_seconds(uint32_t seconds)
{
	static uint64_t ahead;
	uint64_t began = monotonic_now() + ahead;

	for (uint32_t i = 1; i <= 2 * seconds; i++)
		network_check(fake_transport(b), began + i * SECOND / 2);
	ahead += seconds * SECOND;
}

static struct network_peer *stranger(uint64_t nonce)
{
	uint32_t index = directory_find(&b->directory, nonce);

	assert_int_not_equal(index, DIRECTORY_NONE);
	return fake_transport(b)->peers[fake_transport(b)->members + index]->beyond;
}

/* The address that a stranger names gets no questions and no answers. */
static void test_strangers_cost_no_descriptors(void **state)
{
	uint32_t before = count_descriptors();
	uint32_t frames = b->end->frames;

	(void)state;
	for (uint64_t i = 1; i <= HELLOS; i++)
		deliver(FRAME_HELLO, i);
	assert_int_equal(b->directory.strangers, HELLOS);
	for (uint64_t i = 1; i <= 10; i++)
		deliver(FRAME_PING, i);
	check_for_seconds(20);
	assert_int_equal(count_descriptors(), before);
	assert_int_equal(count_datagrams(), 0);
	assert_int_equal(b->end->frames, frames);
	assert_int_equal(network_of_b()->unproved, 0);
}

struct datagram {
	uint32_t magic;
	uint32_t version;
	uint64_t to;
	uint64_t from;
	uint64_t challenge;
	uint64_t answer;
};

static void say(int from, struct datagram said)
{
	struct sockaddr_in keepalive = address_of(network_of_b()->keepalive);

	said.magic = 0x4b4e4356;
	said.version = 2;
	assert_int_equal(sendto(from, &said, sizeof(said), 0, (const struct sockaddr *)&keepalive,
				sizeof(keepalive)),
			 sizeof(said));
}

/* The datagram by which a peer shows its address, from the named address or from another one. */
static void contact(int from, uint64_t to, uint64_t nonce, uint64_t answer)
{
	say(from, (struct datagram){.to = to, .from = nonce, .answer = answer});
}

/* The challenge to the peer with this nonce that arrived at the named address; 0 if nothing arrived. */
static uint64_t take_challenge(uint64_t nonce)
{
	struct datagram said = {0};

	if (recv(named, &said, sizeof(said), 0) < 0)
		return 0;
	assert_int_equal(said.to, nonce);
	assert_int_equal(said.from, network_of_b()->nonce);
	assert_int_equal(said.answer, 0);
	assert_int_not_equal(said.challenge, 0);
	return said.challenge;
}

/*
 * A stranger that answers from its named address, before or after its HELLO, is treated like any other peer.
 */
static void test_an_address_is_proved_by_its_answer(void **state)
{
	int elsewhere = open_at_loopback();
	uint64_t own = network_of_b()->nonce;

	(void)state;
	deliver(FRAME_HELLO, 1);
	contact(elsewhere, own, 1, 0);
	contact(named, own + 1, 1, 0);
	check_for_seconds(3);
	assert_false(network_is_confirmed(stranger(1)));
	assert_int_equal(count_datagrams(), 0);

	/*
	 * A source address can be forged: each contact costs one datagram to it, and nothing else before its
	 * answer.
	 */
	contact(named, own, 1, 0);
	check_for_seconds(3);
	assert_false(network_is_confirmed(stranger(1)));
	uint64_t challenge = take_challenge(1);
	assert_int_not_equal(challenge, 0);
	assert_int_equal(count_datagrams(), 0);
	contact(named, own, 1, challenge + 1);
	check_for_seconds(3);
	assert_false(network_is_confirmed(stranger(1)));
	assert_int_equal(take_challenge(1), challenge);
	contact(elsewhere, own, 1, challenge);
	check_for_seconds(3);
	assert_false(network_is_confirmed(stranger(1)));
	assert_int_equal(count_datagrams(), 0);
	contact(named, own, 1, challenge);
	check_for_seconds(3);
	assert_true(network_is_confirmed(stranger(1)));
	assert_true(count_datagrams() > 0);

	/* Or the application inserts the address. */
	deliver(FRAME_HELLO, 3);
	assert_false(network_is_confirmed(stranger(3)));
	struct core_name name = named_core();
	assert_int_not_equal(directory_add(&b->directory, 3, &name), DIRECTORY_NONE);
	assert_true(network_is_confirmed(stranger(3)));
	assert_int_equal(close(elsewhere), 0);
}

static void test_an_answer_before_the_hello_counts(void **state)
{
	uint64_t own = network_of_b()->nonce;

	(void)state;
	contact(named, own, 1, 0);
	network_keepalive_take(network_of_b());
	uint64_t challenge = take_challenge(1);
	assert_int_not_equal(challenge, 0);
	contact(named, own, 1, challenge);
	network_keepalive_take(network_of_b());
	assert_int_equal(count_datagrams(), 0);
	deliver(FRAME_HELLO, 1);
	assert_true(network_is_confirmed(stranger(1)));
	/* Challenged before its HELLO, it may answer afterwards. */
	(void)count_datagrams(); /* drop the keepalive question to the first stranger */
	contact(named, own, 2, 0);
	network_keepalive_take(network_of_b());
	challenge = take_challenge(2);
	deliver(FRAME_HELLO, 2);
	assert_false(network_is_confirmed(stranger(2)));
	contact(named, own, 2, challenge);
	network_keepalive_take(network_of_b());
	assert_true(network_is_confirmed(stranger(2)));
}

/* Otherwise a forged address could make us send datagrams to it. */
static void test_only_known_peers_are_answered(void **state)
{
	struct datagram asks = {.to = network_of_b()->nonce, .from = 1, .challenge = 77};
	struct datagram answer = {0};
	struct core_name name = named_core();
	int elsewhere = open_at_loopback();

	(void)state;
	say(elsewhere, asks);
	deliver(FRAME_HELLO, 1);
	say(elsewhere, asks);
	network_keepalive_take(network_of_b());
	assert_int_equal(count_datagrams(), 0);
	assert_int_not_equal(directory_add(&b->directory, 1, &name), DIRECTORY_NONE);
	say(elsewhere, asks);
	network_keepalive_take(network_of_b());
	assert_int_equal(count_datagrams(), 0);
	say(named, asks);
	network_keepalive_take(network_of_b());
	assert_int_equal(recv(named, &answer, sizeof(answer), 0), sizeof(answer));
	assert_int_equal(answer.to, 1);
	assert_int_equal(answer.from, network_of_b()->nonce);
	assert_int_equal(answer.answer, 77);
	assert_int_equal(answer.challenge, 0);
	assert_int_equal(close(elsewhere), 0);
}

/* The application's requests wait for the proof, and few peers are answered without it. */
static void test_few_are_answered_without_proof(void **state)
{
	(void)state;
	for (uint64_t i = 1; i <= NETWORK_UNPROVED_MAX + 1; i++) {
		deliver(FRAME_HELLO, i);
		assert_false(network_make_reachable(stranger(i)));
		stranger(i)->met = 0; /* long ago */
		assert_int_equal(network_make_reachable(stranger(i)), i <= NETWORK_UNPROVED_MAX);
	}
	assert_int_equal(network_of_b()->unproved, NETWORK_UNPROVED_MAX);
	check_for_seconds((uint32_t)(fake_transport(b)->timeout / SECOND) + 3);
	assert_int_equal(stranger(1)->peer->state, PEER_PRESENT);
	assert_int_equal(stranger(NETWORK_UNPROVED_MAX + 1)->peer->failure, -ECONNRESET);
}

static uint32_t said;

static void hear(const char *text)
{
	assert_non_null(strstr(text, "messages from further peers are dropped"));
	said++;
}

/* Strangers leave room for peers that the application inserts. That there are too many is reported once. */
static void test_strangers_are_bounded(void **state)
{
	struct core_name name = named_core();

	(void)state;
	said = 0;
	network_set_notice(fake_transport(b), hear);
	for (uint64_t i = 1; i <= NETWORK_STRANGERS_MAX + 5; i++)
		deliver(FRAME_HELLO, i);
	assert_int_equal(b->directory.count, NETWORK_STRANGERS_MAX);
	assert_int_equal(said, 1);
	assert_int_not_equal(directory_add(&b->directory, 999999, &name), DIRECTORY_NONE);
	/* When the application inserts a stranger, there is room for another one. */
	assert_int_not_equal(directory_add(&b->directory, 1, &name), DIRECTORY_NONE);
	deliver(FRAME_HELLO, NETWORK_STRANGERS_MAX + 1);
	assert_int_equal(b->directory.count, NETWORK_STRANGERS_MAX + 2);
}

/* Datagrams from a sender that does not know our nonce do not make an endpoint poll its core. */
static void test_only_who_knows_the_nonce_makes_contact(void **state)
{
	struct sockaddr_in keepalive = address_of(network_of_b()->keepalive);

	(void)state;
	for (uint32_t i = 0; i < 100; i++)
		(void)sendto(named, "", 0, 0, (const struct sockaddr *)&keepalive, sizeof(keepalive));
	contact(named, network_of_b()->nonce + 1, 1, 0);
	for (uint32_t i = 0; i < 10; i++)
		assert_false(network_was_contacted(network_of_b()));
	contact(named, network_of_b()->nonce, 1, 0);
	assert_true(network_was_contacted(network_of_b()));
}

/* Silent hosts take turns with the descriptors that questions to them need. */
static void test_questions_take_turns(void **state)
{
	struct core_name name = named_core();

	(void)state;
	network_of_b()->questions = NETWORK_QUESTIONS_MAX;
	uint32_t index = directory_add(&b->directory, 1, &name);
	struct peer *peer = network_meet(fake_transport(b), fake_transport(b)->members + index);
	peer->sending = true;
	uint32_t before = count_descriptors();
	check_for_seconds(20);
	assert_int_equal(count_descriptors(), before);
	assert_int_equal(peer->beyond->host_questions, 0);
	network_of_b()->questions = 0;
	check_for_seconds(20);
	assert_true(peer->beyond->host_answers);
	assert_int_equal(network_of_b()->questions, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_strangers_cost_no_descriptors, setup, teardown),
		cmocka_unit_test_setup_teardown(test_an_address_is_proved_by_its_answer, setup, teardown),
		cmocka_unit_test_setup_teardown(test_an_answer_before_the_hello_counts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_only_known_peers_are_answered, setup, teardown),
		cmocka_unit_test_setup_teardown(test_few_are_answered_without_proof, setup, teardown),
		cmocka_unit_test_setup_teardown(test_strangers_are_bounded, setup, teardown),
		cmocka_unit_test_setup_teardown(test_only_who_knows_the_nonce_makes_contact, setup, teardown),
		cmocka_unit_test_setup_teardown(test_questions_take_turns, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
