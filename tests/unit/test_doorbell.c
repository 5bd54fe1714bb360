/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Interrupts between guests: granting, proving, sleeping until one comes, losing them, and forged words of
 * hostile peers.
 */
#include "fake_doorbell.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "region/sleep.h"

#define MEMBERS 4U
/* A sleep of this length was not ended by its expected cause. Sleeps have no other limit here. */
#define LOST_NANOSECONDS UINT64_C(60000000000)
#define A_MILLISECOND UINT64_C(1000000)

/* Two processes or guests, each with its own mapping: [0] sends, [1] sleeps. */
static struct region *regions[2];
static struct node nodes[2];
static struct sleep_watch watch;

static struct region *map_again(const struct region *region)
{
	struct region *again = calloc(1, sizeof(*again));

	assert_non_null(again);
	*again = *region;
	again->doorbell = NULL;
	again->fd = dup(region->fd);
	again->base = mmap(NULL, region->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, again->fd, 0);
	assert_ptr_not_equal(again->base, MAP_FAILED);
	return again;
}

/*
 * Attaching tries the doorbell. The device counts the word only after it has sent the interrupt, and
 * attaching may already have returned by then: so wait.
 */
static void attach(struct region *region)
{
	struct region_error error;
	uint32_t rings = fake_doorbell_rings(NULL);

	if (doorbell_attach(region, fake_socket, &error) != 0)
		fail_msg("%s", error.text);
	fake_doorbell_await(rings + 1);
}

static int open_regions(void **state)
{
	(void)state;
	fake_doorbell_open();
	regions[0] = world_region(MEMBERS, WORLD_SECTION_BYTES);
	regions[0]->kind = REGION_PCI; /* no shared kernel: no futexes, no locks */
	regions[1] = map_again(regions[0]);
	return 0;
}

static int close_regions(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		node_close(&nodes[i]);
		region_detach(regions[i]);
	}
	fake_doorbell_close();
	return 0;
}

/* Both have doorbells and are connected. */
static void open_pair(void)
{
	char byte = 0;

	for (int i = 0; i < 2; i++) {
		if (regions[i]->doorbell == NULL)
			attach(regions[i]);
		node_open(&nodes[i], regions[i]);
	}
	assert_int_equal(node_send(&nodes[0], &nodes[1], &byte, 1, 0, FI_MSG, NULL), 0);
	assert_int_equal(node_receive(&nodes[1], NULL, &byte, 1, 0, FI_MSG, NULL), 0);
	for (int i = 0; i < 256; i++)
		for (int node = 0; node < 2; node++)
			(void)messenger_progress(nodes[node].messenger);
}

static void send_byte(void)
{
	char byte = 0;

	assert_int_equal(node_send(&nodes[0], &nodes[1], &byte, 1, 0, FI_MSG, NULL), 0);
}

static struct transport *sleeper(void)
{
	return nodes[1].messenger->transport;
}

/* Begin to sleep. Returns whether every event will end the sleep. */
static bool sleep_arm(void)
{
	transport_sleep_begin(sleeper());
	transport_progress_full(sleeper());
	sleep_watch_open(&watch);
	return transport_sleep_watch(sleeper(), &watch);
}

static enum sleep_end sleep_for(uint64_t nanoseconds)
{
	return sleep_until(&watch, monotonic_now() + nanoseconds);
}

static struct section_header *section_of(int node)
{
	return section_header(regions[node], node_slot(&nodes[node]));
}

/* ---- asking the agent ---- */

static void test_interrupts_are_granted_for_as_long_as_they_are_used(void **state)
{
	struct region_error error;
	struct region *more[FAKE_VECTORS];
	uint32_t vectors = 0;
	uint32_t last = 0;

	(void)state;
	for (uint32_t i = 0; i < FAKE_VECTORS; i++) {
		more[i] = map_again(regions[0]);
		attach(more[i]);
		assert_true(doorbell_works(more[i]->doorbell));
		assert_int_equal(more[i]->doorbell->word >> 16, FAKE_GUEST);
		vectors |= 1U << (more[i]->doorbell->word & 0xffff);
		assert_int_equal(fake_doorbell_rings(&last), i + 1);
		assert_int_equal(last, more[i]->doorbell->word);
	}
	assert_int_equal(vectors, (1U << FAKE_VECTORS) - 1);
	assert_int_equal(doorbell_attach(regions[0], fake_socket, &error), -EBUSY);
	assert_non_null(strstr(error.text, "no interrupt left"));
	assert_null(regions[0]->doorbell);
	/* A vector is given back, and soon granted to another process. */
	uint32_t word = more[1]->doorbell->word;
	region_detach(more[1]);
	int result = -EBUSY;
	for (int i = 0; i < 1000 && result == -EBUSY; i++)
		result = doorbell_attach(regions[0], fake_socket, &error);
	assert_int_equal(result, 0);
	assert_int_equal(regions[0]->doorbell->word, word);
	region_detach(more[0]);
	region_detach(more[2]);
}

static void test_without_an_agent_there_is_nothing_to_say(void **state)
{
	struct region_error error;

	(void)state;
	assert_int_equal(doorbell_attach(regions[0], "/nonexistent/doorbell", &error), -ENOENT);
	regions[0]->kind = REGION_FILE; /* a file is no device */
	assert_int_equal(doorbell_attach(regions[0], NULL, &error), -ENOENT);
	assert_null(regions[0]->doorbell);
}

static void test_what_does_not_interrupt_is_not_relied_on(void **state)
{
	struct region_error error;

	(void)state;
	fake_doorbell_hold(true);
	assert_int_equal(doorbell_attach(regions[0], fake_socket, &error), -ETIMEDOUT);
	assert_non_null(strstr(error.text, "no interrupt came"));
	assert_null(regions[0]->doorbell);
}

/* An agent that sends `length` bytes of `grant` with this number of descriptors. */
static int request_grant_from(const struct doorbell_grant *grant, size_t length, size_t descriptors)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	struct region_error error;

	(void)snprintf(name.sun_path, sizeof(name.sun_path), "%s-other", fake_socket);
	int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	assert_int_equal(bind(listener, (const struct sockaddr *)&name, sizeof(name)), 0);
	assert_int_equal(listen(listener, 1), 0);
	pid_t agent = fork();
	if (agent == 0) {
		const int both[2] = {listener, listener};
		union {
			struct cmsghdr header;
			char room[CMSG_SPACE(sizeof(both))];
		} control = {.header = {.cmsg_level = SOL_SOCKET,
					.cmsg_type = SCM_RIGHTS,
					.cmsg_len = CMSG_LEN(descriptors * sizeof(int))}};
		struct doorbell_grant copy = *grant;
		struct iovec bytes = {.iov_base = &copy, .iov_len = length};
		struct msghdr message = {.msg_iov = &bytes,
					 .msg_iovlen = 1,
					 .msg_control = descriptors > 0 ? &control : NULL,
					 .msg_controllen =
						 descriptors > 0 ? CMSG_SPACE(descriptors * sizeof(int)) : 0};
		memcpy(CMSG_DATA(&control.header), both, sizeof(both));
		int connection = accept(listener, NULL, NULL);
		_exit(sendmsg(connection, &message, 0) == (ssize_t)length ? 0 : 1);
	}
	int result = doorbell_attach(regions[0], name.sun_path, &error);
	int status = 0;
	assert_int_equal(waitpid(agent, &status, 0), agent);
	assert_int_equal(status, 0);
	(void)close(listener);
	(void)unlink(name.sun_path);
	assert_null(regions[0]->doorbell);
	return result;
}

static void test_an_agent_that_does_not_fit_is_refused(void **state)
{
	const struct doorbell_grant good = {.version = DOORBELL_VERSION, .offset = 12};
	struct doorbell_grant bad = good;

	(void)state;
	assert_int_equal(request_grant_from(&good, sizeof(good), 0), -EPROTO);
	assert_int_equal(request_grant_from(&good, sizeof(good), 1), -EPROTO);
	assert_int_equal(request_grant_from(&good, sizeof(good) - 4, 2), -EPROTO);
	bad.version = DOORBELL_VERSION + 1;
	assert_int_equal(request_grant_from(&bad, sizeof(bad), 2), -EPROTO);
	bad = (struct doorbell_grant){.version = DOORBELL_VERSION, .offset = REGION_PAGE - 3};
	assert_int_equal(request_grant_from(&bad, sizeof(bad), 2), -EPROTO);
	bad.offset = REGION_PAGE;
	assert_int_equal(request_grant_from(&bad, sizeof(bad), 2), -EPROTO);
	/* The descriptor is not a file that can be mapped. */
	assert_int_equal(request_grant_from(&good, sizeof(good), 2), -ENODEV);
	assert_int_equal(request_grant_from(&good, 0, 0), -EBUSY);
}

/* ---- sleeping ---- */

static void test_a_message_interrupts_one_that_sleeps(void **state)
{
	(void)state;
	open_pair();
	uint32_t rings = fake_doorbell_rings(NULL);
	uint32_t last = 0;
	/* A process that is awake is not interrupted. */
	send_byte();
	assert_int_equal(fake_doorbell_rings(NULL), rings);
	assert_true(sleep_arm());
	uint32_t sleeping = shared_load_u32(&section_of(1)->sleeping);
	assert_int_equal(sleeping % SLEEPING_STEP, SLEEPING_INTERRUPTED);
	assert_int_equal(sleep_for(A_MILLISECOND), SLEEP_ELAPSED);
	/* Several messages cause one interrupt. */
	for (int i = 0; i < 3; i++)
		send_byte();
	assert_int_equal(sleep_for(LOST_NANOSECONDS), SLEEP_RUNG);
	fake_doorbell_await(rings + 1);
	/* The next sleep causes another interrupt. */
	transport_progress_full(sleeper());
	sleep_watch_open(&watch);
	assert_true(transport_sleep_watch(sleeper(), &watch));
	assert_int_equal(sleep_for(20 * A_MILLISECOND), SLEEP_ELAPSED);
	assert_int_equal(fake_doorbell_rings(&last), rings + 1);
	assert_int_equal(last, regions[1]->doorbell->word);
	transport_sleep_end(sleeper());
}

static void test_an_interrupt_before_the_sleep_is_not_lost(void **state)
{
	(void)state;
	open_pair();
	uint32_t rings = fake_doorbell_rings(NULL);
	uint32_t heard = doorbell_count(regions[1]->doorbell);
	transport_sleep_begin(sleeper());
	transport_progress_full(sleeper());
	/* The message comes after the last poll, and its interrupt before the sleep begins. */
	send_byte();
	fake_doorbell_await(rings + 1);
	while (doorbell_count(regions[1]->doorbell) == heard)
		(void)usleep(100);
	sleep_watch_open(&watch);
	(void)transport_sleep_watch(sleeper(), &watch);
	assert_int_equal(sleep_for(LOST_NANOSECONDS), SLEEP_RUNG);
	transport_sleep_end(sleeper());
}

/* Another thread wakes the sleeper by changing a word of this process, without an interrupt. */
static void test_other_words_end_the_sleep_too(void **state)
{
	atomic_uint word = 0;

	(void)state;
	open_pair();
	assert_true(sleep_arm());
	sleep_on_private(&watch, &word, 0);
	sleep_wake_private(&word);
	assert_int_equal(sleep_for(LOST_NANOSECONDS), SLEEP_RUNG);
	transport_sleep_end(sleeper());
}

static void test_one_that_cannot_ring_makes_sleeps_short(void **state)
{
	(void)state;
	open_pair();
	assert_true(sleep_arm());
	transport_sleep_end(sleeper());
	shared_store_u64(&section_of(0)->interrupt, 0);
	nodes[1].messenger->transport->attachments[0].next_survey = 0;
	assert_false(sleep_arm());
	transport_sleep_end(sleeper());
}

static void test_members_say_whether_they_can_be_interrupted(void **state)
{
	(void)state;
	attach(regions[1]);
	for (int i = 0; i < 2; i++)
		node_open(&nodes[i], regions[i]);
	assert_int_equal(shared_load_u64(&section_of(0)->interrupt), 0);
	assert_int_equal(shared_load_u64(&section_of(1)->interrupt),
			 INTERRUPTIBLE | regions[1]->doorbell->word);
	/* A member without a device polls by itself, and does not ring. */
	uint32_t rings = fake_doorbell_rings(NULL);
	assert_false(sleep_arm());
	send_byte();
	assert_int_equal(sleep_for(20 * A_MILLISECOND), SLEEP_ELAPSED);
	assert_int_equal(fake_doorbell_rings(NULL), rings);
	transport_sleep_end(sleeper());
}

/* ---- what peers may do ---- */

static void test_a_forged_word_rings_and_does_nothing_else(void **state)
{
	/* A vector that nobody has, a vector of another process, and a guest that does not exist. */
	const uint64_t words[] = {FAKE_GUEST << 16 | 2, FAKE_GUEST << 16, UINT32_MAX};
	uint32_t last = 0;

	(void)state;
	open_pair();
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		uint32_t rings = fake_doorbell_rings(NULL);
		assert_true(sleep_arm());
		/* Bits above the flag have no meaning. */
		shared_store_u64(&section_of(1)->interrupt,
				 UINT64_C(0xabcd) << 40 | INTERRUPTIBLE | words[i]);
		send_byte();
		fake_doorbell_await(rings + 1);
		(void)fake_doorbell_rings(&last);
		assert_int_equal(last, words[i]);
		transport_sleep_end(sleeper());
		assert_true(messenger_progress(nodes[1].messenger) > 0);
	}
	/* A peer that withdraws its word harms only itself. */
	uint32_t rings = fake_doorbell_rings(NULL);
	assert_true(sleep_arm());
	shared_store_u64(&section_of(1)->interrupt, words[0]);
	send_byte();
	assert_int_equal(sleep_for(20 * A_MILLISECOND), SLEEP_ELAPSED);
	assert_int_equal(fake_doorbell_rings(NULL), rings);
	transport_sleep_end(sleeper());
}

static void test_an_agent_that_dies_is_not_waited_for(void **state)
{
	(void)state;
	open_pair();
	assert_true(sleep_arm());
	fake_doorbell_end();
	assert_int_equal(sleep_for(LOST_NANOSECONDS), SLEEP_RUNG);
	transport_sleep_end(sleeper());
	assert_false(doorbell_works(regions[1]->doorbell));
	assert_false(sleep_arm());
	assert_int_equal(shared_load_u32(&section_of(1)->sleeping) & SLEEPING_INTERRUPTED, 0);
	/* The sleep can still be ended, and the messages are there. */
	send_byte();
	transport_sleep_end(sleeper());
	assert_true(messenger_progress(nodes[1].messenger) > 0);
}

static void test_a_forked_child_has_no_interrupts(void **state)
{
	int status = 0;

	(void)state;
	open_pair();
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		region_after_fork(regions[1]);
		bool works = doorbell_works(regions[1]->doorbell);
		doorbell_detach(regions[1]); /* must not wait for a thread that the child lacks */
		_exit(works ? 1 : 0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	/* The parent still has its interrupts. */
	assert_true(sleep_arm());
	send_byte();
	assert_int_equal(sleep_for(LOST_NANOSECONDS), SLEEP_RUNG);
	transport_sleep_end(sleeper());
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_regions, close_regions)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_interrupts_are_granted_for_as_long_as_they_are_used),
		TEST(test_without_an_agent_there_is_nothing_to_say),
		TEST(test_what_does_not_interrupt_is_not_relied_on),
		TEST(test_an_agent_that_does_not_fit_is_refused),
		TEST(test_a_message_interrupts_one_that_sleeps),
		TEST(test_an_interrupt_before_the_sleep_is_not_lost),
		TEST(test_other_words_end_the_sleep_too),
		TEST(test_one_that_cannot_ring_makes_sleeps_short),
		TEST(test_members_say_whether_they_can_be_interrupted),
		TEST(test_a_forged_word_rings_and_does_nothing_else),
		TEST(test_an_agent_that_dies_is_not_waited_for),
		TEST(test_a_forked_child_has_no_interrupts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
