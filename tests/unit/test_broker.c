/* SPDX-License-Identifier: BSD-3-Clause */
/* A member and brokers: one that hands out a region, and others that hand out anything else, or nothing. */
#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "region/broker.h"
#include "shared_name.h"

#define MEMBERS 4U
#define QUICK_MILLISECONDS 300U
/* Only against hanging. */
#define GUARD_NANOSECONDS UINT64_C(60000000000)

static const uint64_t region_id[2] = {7, 9};
static size_t whole;

/* A broker in a thread of this process. */
struct fake_broker {
	char directory[SHARED_NAME_BYTES];
	char path[96];
	char name[112];
	int listener;
	bool silent;     /* it accepts, and answers nothing */
	uint32_t closes; /* so many connections are closed without an answer */
	struct broker_answer answer;
	size_t length; /* of the answer that it sends */
	int memory[2]; /* descriptors that it sends, -1 for none */
	struct broker_request heard;
	pthread_t thread;
};

static void send_answer(const struct fake_broker *broker, int connection)
{
	struct iovec part = {.iov_base = (void *)(uintptr_t)&broker->answer, .iov_len = broker->length};
	union {
		char bytes[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr aligned;
	} control = {{0}};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	size_t count = (broker->memory[0] >= 0) + (size_t)(broker->memory[1] >= 0);

	if (count > 0) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(count * sizeof(int));
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(header), broker->memory, count * sizeof(int));
	}
	(void)sendmsg(connection, &message, MSG_NOSIGNAL);
}

static void *serve(void *argument)
{
	struct fake_broker *broker = argument;

	for (;;) {
		int connection = accept(broker->listener, NULL, NULL);
		if (connection < 0)
			return NULL;
		(void)recv(connection, &broker->heard, sizeof(broker->heard), 0);
		if (broker->silent) /* until the member gives up */
			(void)recv(connection, &(char){0}, 1, 0);
		else if (broker->closes > 0)
			broker->closes--;
		else
			send_answer(broker, connection);
		(void)close(connection);
	}
}

static int sealed_memory(size_t bytes, int seals)
{
	int fd = memfd_create("vicinal-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	if (bytes > 0)
		assert_int_equal(posix_fallocate(fd, 0, (off_t)bytes), 0);
	if (bytes >= whole) {
		void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		assert_ptr_not_equal(base, MAP_FAILED);
		assert_int_equal(region_format(base, bytes, MEMBERS, REGION_SECTION_MIN, region_id), 0);
		assert_int_equal(munmap(base, bytes), 0);
	}
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static int good_memory(void)
{
	return sealed_memory(whole, BROKER_SEALS);
}

static void open_socket(struct fake_broker *broker, int kind)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};

	*broker = (struct fake_broker){
		.answer = {.magic = BROKER_MAGIC, .version = BROKER_VERSION},
		.length = sizeof(struct broker_answer),
		.memory = {-1, -1},
	};
	whole = region_size(MEMBERS, REGION_SECTION_MIN);
	shared_name(broker->directory);
	assert_non_null(mkdtemp(broker->directory));
	(void)snprintf(broker->path, sizeof(broker->path), "%s/socket", broker->directory);
	(void)snprintf(broker->name, sizeof(broker->name), "socket:%s", broker->path);
	(void)snprintf(name.sun_path, sizeof(name.sun_path), "%s", broker->path);
	broker->listener = socket(AF_UNIX, kind | SOCK_CLOEXEC, 0);
	assert_true(broker->listener >= 0);
	assert_int_equal(bind(broker->listener, (const struct sockaddr *)&name, sizeof(name)), 0);
	assert_int_equal(listen(broker->listener, 8), 0);
}

static void start(struct fake_broker *broker)
{
	assert_int_equal(pthread_create(&broker->thread, NULL, serve, broker), 0);
}

/* Stop the thread, but let the socket's file stay. */
static void stop(struct fake_broker *broker)
{
	assert_int_equal(shutdown(broker->listener, SHUT_RDWR), 0); /* accept() returns */
	assert_int_equal(pthread_join(broker->thread, NULL), 0);
	assert_int_equal(close(broker->listener), 0);
	for (int i = 0; i < 2; i++)
		if (broker->memory[i] >= 0)
			assert_int_equal(close(broker->memory[i]), 0);
}

static void clean_up(const struct fake_broker *broker)
{
	(void)unlink(broker->path);
	assert_int_equal(rmdir(broker->directory), 0);
}

static uint32_t descriptors_open(void)
{
	uint32_t count = 0;

	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void assert_refused(const char *name, int code, const char *says)
{
	struct region *region = NULL;
	struct region_error error = {""};
	uint32_t before = descriptors_open();
	uint64_t begun = monotonic_now();
	int result = region_attach_within(name, QUICK_MILLISECONDS, &region, &error);

	if (result != code || strstr(error.text, says) == NULL)
		fail_msg("result %d, and the message is: %s", result, error.text);
	assert_null(region);
	assert_null(strchr(error.text, '\n'));
	/* The broker's thread closes its end of the connection when it likes. */
	while (descriptors_open() != before)
		assert_true(monotonic_now() - begun < GUARD_NANOSECONDS);
}

/* What a broker that sends these descriptors makes of a member. Closes them. */
static void assert_memory_refused(int one, int other, int code, const char *says)
{
	struct fake_broker broker;

	open_socket(&broker, SOCK_SEQPACKET);
	broker.memory[0] = one;
	broker.memory[1] = other;
	start(&broker);
	assert_refused(broker.name, code, says);
	stop(&broker);
	clean_up(&broker);
}

static void assert_answer_refused(const struct broker_answer *answer, size_t length, int code,
				  const char *says)
{
	struct fake_broker broker;

	open_socket(&broker, SOCK_SEQPACKET);
	broker.answer = *answer;
	broker.length = length;
	start(&broker);
	assert_refused(broker.name, code, says);
	stop(&broker);
	clean_up(&broker);
}

/* ---- a good broker ---- */

static void test_a_region_of_a_broker_is_attached_and_joined(void **state)
{
	struct fake_broker broker;
	struct region *region = NULL;
	struct region_error error = {""};
	struct member *members[2];

	(void)state;
	open_socket(&broker, SOCK_SEQPACKET);
	broker.memory[0] = good_memory();
	start(&broker);
	if (region_attach(broker.name, &region, &error) != 0)
		fail_msg("%s", error.text);
	stop(&broker); /* no member needs the broker any more */
	assert_int_equal(broker.heard.magic, BROKER_MAGIC);
	assert_int_equal(broker.heard.version, BROKER_VERSION);
	assert_int_equal(broker.heard.purpose, BROKER_JOIN);
	assert_int_equal(region->kind, REGION_FILE);
	assert_true(region->brokered);
	assert_int_equal(region->members, MEMBERS);
	assert_int_equal(region->id[0], region_id[0]);
	assert_string_equal(region->name, broker.name);
	assert_string_equal(region->path, broker.path);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(member_join(region, i, 0, &members[i], &error), 0);
	/* Each has a lock of its own, although both have the memory from one descriptor. */
	assert_int_not_equal(members[0]->slot, members[1]->slot);
	assert_int_equal(member_observe(members[0], members[1]->slot, members[1]->epoch,
					&(struct last_heartbeat){0}, monotonic_now(), 0),
			 MEMBER_ALIVE);
	/* No member can truncate the memory under the others. */
	assert_int_equal(ftruncate(region->fd, 0), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(ftruncate(region->fd, (off_t)whole * 2), -1);
	assert_int_equal(fcntl(region->fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	for (uint32_t i = 0; i < 2; i++)
		member_leave(members[i]);
	region_detach(region);
	clean_up(&broker);
}

static void test_a_broker_that_is_started_again_is_asked_again(void **state)
{
	struct fake_broker broker;
	struct region *region = NULL;
	struct region_error error = {""};

	(void)state;
	open_socket(&broker, SOCK_SEQPACKET);
	broker.memory[0] = good_memory();
	broker.closes = 3;
	start(&broker);
	if (region_attach(broker.name, &region, &error) != 0)
		fail_msg("%s", error.text);
	region_detach(region);
	stop(&broker);
	clean_up(&broker);
}

/* ---- no broker ---- */

static void test_without_a_broker_the_message_says_why(void **state)
{
	static char path[PATH_MAX];
	struct fake_broker broker;
	int file = -1;

	(void)state;
	open_socket(&broker, SOCK_SEQPACKET);
	assert_int_equal(close(broker.listener), 0);
	assert_refused(broker.name, -ECONNREFUSED, "no broker listens on");
	assert_int_equal(unlink(broker.path), 0);
	assert_refused(broker.name, -ENOENT, "there is no broker's socket");
	file = open(broker.path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(file >= 0);
	assert_int_equal(close(file), 0);
	assert_refused(broker.name, -ENOTSOCK, "is not a broker's socket");
	clean_up(&broker);
	open_socket(&broker, SOCK_STREAM);
	assert_refused(broker.name, -EPROTOTYPE, "socket of another service");
	assert_int_equal(close(broker.listener), 0);
	clean_up(&broker);
	(void)snprintf(path, sizeof(path), "socket:/%0200d", 0);
	assert_refused(path, -ENAMETOOLONG, "more than 107 bytes");
	assert_refused("socket:relative", -EINVAL, "not understood");
	assert_refused("socket:", -EINVAL, "not understood");
}

static void test_a_silent_broker_costs_a_bounded_time(void **state)
{
	struct fake_broker broker;
	struct region *region = NULL;
	struct region_error error = {""};

	(void)state;
	open_socket(&broker, SOCK_SEQPACKET);
	broker.silent = true;
	start(&broker);
	uint64_t begun = monotonic_now();
	assert_int_equal(region_attach_within(broker.name, QUICK_MILLISECONDS, &region, &error), -ETIMEDOUT);
	assert_true(monotonic_now() - begun >= QUICK_MILLISECONDS * UINT64_C(1000000));
	assert_true(monotonic_now() - begun < GUARD_NANOSECONDS);
	assert_non_null(strstr(error.text, "did not answer within 0.3 s"));
	stop(&broker);
	clean_up(&broker);
}

/* A broker that does not even accept, with a full queue. */
static void test_a_stopped_broker_costs_a_bounded_time(void **state)
{
	struct fake_broker broker;
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int connections[64];
	uint32_t count = 0;

	(void)state;
	open_socket(&broker, SOCK_SEQPACKET);
	(void)snprintf(name.sun_path, sizeof(name.sun_path), "%s", broker.path);
	for (int result = 0; result == 0 && count < 64; count++) {
		connections[count] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		result = connect(connections[count], (const struct sockaddr *)&name, sizeof(name));
	}
	assert_true(count < 64);
	assert_refused(broker.name, -ETIMEDOUT, "did not answer within 0.3 s");
	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(close(connections[i]), 0);
	assert_int_equal(close(broker.listener), 0);
	clean_up(&broker);
}

static void test_a_broker_that_always_closes_costs_a_bounded_time(void **state)
{
	struct fake_broker broker;

	(void)state;
	open_socket(&broker, SOCK_SEQPACKET);
	broker.closes = UINT32_MAX;
	start(&broker);
	assert_refused(broker.name, -ECONNRESET, "without an answer");
	stop(&broker);
	clean_up(&broker);
}

/* ---- hostile answers ---- */

static void test_answers_of_another_kind_are_refused(void **state)
{
	struct broker_answer good = {.magic = BROKER_MAGIC, .version = BROKER_VERSION};
	struct broker_answer answer = good;

	(void)state;
	assert_answer_refused(&good, sizeof(good), -EPROTO, "256 bytes with 0 descriptors");
	assert_answer_refused(&good, 1, -EPROTO, "does not answer as a broker");
	assert_answer_refused(&good, 16, -EPROTO, "16 bytes with 0 descriptors");
	answer.magic++;
	assert_answer_refused(&answer, sizeof(answer), -EPROTO, "does not answer as a broker");
	answer = good;
	answer.version = 2;
	assert_answer_refused(&answer, 16, -EPROTONOSUPPORT,
			      "speaks version 2 of its protocol and this provider version 1");
	answer = good;
	answer.verdict = BROKER_REFUSED;
	(void)snprintf(answer.reason, sizeof(answer.reason), "because\n\033[31mof\xff: this");
	assert_answer_refused(&answer, sizeof(answer), -EACCES,
			      "refused this process: because??[31mof?: this");
	memset(answer.reason, 'x', sizeof(answer.reason)); /* without an end */
	assert_answer_refused(&answer, sizeof(answer), -EACCES, "xxx");
	memset(answer.reason, 0, sizeof(answer.reason));
	assert_answer_refused(&answer, sizeof(answer), -EACCES, "no reason given");
	answer.verdict = BROKER_FULL;
	assert_answer_refused(&answer, sizeof(answer), -ENOSPC, "refused");
	answer.verdict = 77;
	assert_answer_refused(&answer, sizeof(answer), -EREMOTEIO, "refused");
}

static void test_a_refusal_with_a_descriptor_is_refused(void **state)
{
	struct fake_broker broker;

	(void)state;
	open_socket(&broker, SOCK_SEQPACKET);
	broker.answer.verdict = BROKER_REFUSED;
	broker.memory[0] = good_memory();
	start(&broker);
	assert_refused(broker.name, -EPROTO, "1 descriptors");
	stop(&broker);
	clean_up(&broker);
}

/* The broker is asked again and again, and each of its messages has a descriptor. */
static void test_an_empty_answer_with_a_descriptor_is_none(void **state)
{
	struct fake_broker broker;

	(void)state;
	open_socket(&broker, SOCK_SEQPACKET);
	broker.length = 0;
	broker.memory[0] = good_memory();
	start(&broker);
	assert_refused(broker.name, -ECONNRESET, "without an answer");
	stop(&broker);
	clean_up(&broker);
}

static int pipe_end(void)
{
	int ends[2];

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_int_equal(close(ends[1]), 0);
	return ends[0];
}

static int shared_file(void)
{
	char name[SHARED_NAME_BYTES];

	shared_name(name);
	int fd = mkostemp(name, O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(unlink(name), 0);
	assert_int_equal(posix_fallocate(fd, 0, (off_t)whole), 0);
	return fd;
}

/* The memory of a descriptor, opened again for less. */
static int opened_again(int fd, int flags)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int again = open(path, flags | O_CLOEXEC);
	assert_true(again >= 0);
	assert_int_equal(close(fd), 0);
	return again;
}

static void test_other_descriptors_are_refused(void **state)
{
	(void)state;
	whole = region_size(MEMBERS, REGION_SECTION_MIN);
	assert_memory_refused(pipe_end(), -1, -EINVAL, "something else than a memfd");
	assert_memory_refused(open("/dev/zero", O_RDWR | O_CLOEXEC), -1, -EINVAL, "than a memfd");
	assert_memory_refused(open("/dev/shm", O_PATH | O_CLOEXEC), -1, -EINVAL, "than a memfd");
	assert_memory_refused(shared_file(), -1, -EPERM, "can truncate");
	assert_memory_refused(sealed_memory(whole, 0), -1, -EPERM, "can truncate (seals 0)");
	assert_memory_refused(sealed_memory(whole, F_SEAL_SHRINK), -1, -EPERM, "can truncate");
	assert_memory_refused(sealed_memory(whole, F_SEAL_SHRINK | F_SEAL_GROW), -1, -EPERM, "can truncate");
	assert_memory_refused(sealed_memory(whole, BROKER_SEALS | F_SEAL_WRITE), -1, -EACCES, "cannot write");
	assert_memory_refused(sealed_memory(whole, BROKER_SEALS | F_SEAL_FUTURE_WRITE), -1, -EACCES,
			      "cannot write");
	assert_memory_refused(opened_again(good_memory(), O_RDONLY), -1, -EACCES, "cannot write");
	assert_memory_refused(good_memory(), good_memory(), -EPROTO, "2 descriptors");
}

static void test_memory_without_a_region_is_refused(void **state)
{
	(void)state;
	whole = region_size(MEMBERS, REGION_SECTION_MIN);
	assert_memory_refused(sealed_memory(0, BROKER_SEALS), -1, -ENODATA, "too few for a region");
	assert_memory_refused(sealed_memory(1000, BROKER_SEALS), -1, -ENODATA, "too few for a region");
	assert_memory_refused(sealed_memory(whole - REGION_PAGE, BROKER_SEALS), -1, -ENODATA, "magic");
	/* With holes, an access could find no memory later. */
	int fd = memfd_create("vicinal-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	unsigned char *memory = calloc(1, whole);
	assert_true(fd >= 0);
	assert_non_null(memory);
	assert_int_equal(region_format(memory, whole, MEMBERS, REGION_SECTION_MIN, region_id), 0);
	assert_int_equal(ftruncate(fd, (off_t)whole), 0);
	assert_int_equal(pwrite(fd, memory, REGION_PAGE, 0), REGION_PAGE);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, BROKER_SEALS), 0);
	free(memory);
	assert_memory_refused(fd, -1, -ENOSPC, "backed by memory");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_region_of_a_broker_is_attached_and_joined),
		cmocka_unit_test(test_a_broker_that_is_started_again_is_asked_again),
		cmocka_unit_test(test_without_a_broker_the_message_says_why),
		cmocka_unit_test(test_a_silent_broker_costs_a_bounded_time),
		cmocka_unit_test(test_a_stopped_broker_costs_a_bounded_time),
		cmocka_unit_test(test_a_broker_that_always_closes_costs_a_bounded_time),
		cmocka_unit_test(test_answers_of_another_kind_are_refused),
		cmocka_unit_test(test_a_refusal_with_a_descriptor_is_refused),
		cmocka_unit_test(test_an_empty_answer_with_a_descriptor_is_none),
		cmocka_unit_test(test_other_descriptors_are_refused),
		cmocka_unit_test(test_memory_without_a_region_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
