/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The peers with which an end copies through the kernel: only peers that may trace it, see region/process.h.
 * The peer is a process of its own, whose rights change before it joins.
 */
#include "side.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define SECTION_BYTES (6U * 1024U * 1024U)
#define HEAP_BYTES (4U * 1024U * 1024U)
#define LENGTH 600001U
#define MESSAGES 4U
#define ANOTHER_ID 12345U
/* The time limit against a call that does not return. */
#define HUNG_SECONDS 60U

/* The number of calls of this process that read or write another process's memory. */
static uint32_t calls;

ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long local_count,
				const struct iovec *remote, unsigned long remote_count, unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long local_count,
				const struct iovec *remote, unsigned long remote_count, unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long local_count,
				const struct iovec *remote, unsigned long remote_count, unsigned long flags)
{
	calls += pid != getpid();
	return __real_process_vm_readv(pid, local, local_count, remote, remote_count, flags);
}

ssize_t __real_process_vm_writev(pid_t pid, const struct iovec *local, unsigned long local_count,
				 const struct iovec *remote, unsigned long remote_count, unsigned long flags);
ssize_t __wrap_process_vm_writev(pid_t pid, const struct iovec *local, unsigned long local_count,
				 const struct iovec *remote, unsigned long remote_count, unsigned long flags);
ssize_t __wrap_process_vm_writev(pid_t pid, const struct iovec *local, unsigned long local_count,
				 const struct iovec *remote, unsigned long remote_count, unsigned long flags)
{
	calls += pid != getpid();
	return __real_process_vm_writev(pid, local, local_count, remote, remote_count, flags);
}

/* ---- the peers: each changes one thing, and returns whether that was possible ---- */

static bool stay_equal(void)
{
	return true;
}

static bool be_another_user(void)
{
	return setresgid(ANOTHER_ID, ANOTHER_ID, ANOTHER_ID) == 0 &&
	       setresuid(ANOTHER_ID, ANOTHER_ID, ANOTHER_ID) == 0;
}

static bool be_another_user_with_capabilities(void)
{
	return prctl(PR_SET_KEEPCAPS, 1) == 0 && setresuid(ANOTHER_ID, ANOTHER_ID, ANOTHER_ID) == 0;
}

static bool be_another_effective_user(void)
{
	return setresuid((uid_t)-1, ANOTHER_ID, (uid_t)-1) == 0;
}

static bool be_of_another_group(void)
{
	return setresgid(ANOTHER_ID, ANOTHER_ID, ANOTHER_ID) == 0;
}

static bool have_fewer_capabilities(void)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[2] = {0};

	if (syscall(SYS_capget, &header, data) != 0 || (data[0].permitted & 1U << CAP_SYS_PTRACE) == 0)
		return false;
	data[0].effective &= ~(1U << CAP_SYS_PTRACE);
	data[0].permitted &= ~(1U << CAP_SYS_PTRACE);
	return syscall(SYS_capset, &header, data) == 0;
}

static bool write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t length = (ssize_t)strlen(text);
	bool is_written = fd >= 0 && write(fd, text, (size_t)length) == length;

	if (fd >= 0)
		(void)close(fd);
	return is_written;
}

/* In the new namespace its ids are the same as here, and it has all capabilities. */
static bool enter_user_namespace(void)
{
	char users[64];
	char groups[64];

	(void)snprintf(users, sizeof(users), "%u %u 1", getuid(), getuid());
	(void)snprintf(groups, sizeof(groups), "%u %u 1", getgid(), getgid());
	return unshare(CLONE_NEWUSER) == 0 && write_file("/proc/self/setgroups", "deny") &&
	       write_file("/proc/self/uid_map", users) && write_file("/proc/self/gid_map", groups);
}

/* The first process of a PID namespace below ours goes on. */
static bool enter_pid_namespace(void)
{
	int status = 0;

	if (unshare(CLONE_NEWPID) != 0)
		return false;
	pid_t child = fork();
	if (child == 0)
		return true;
	_exit(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status)
										    : 98);
}

/* ---- messages both ways ---- */

static unsigned char bytes[LENGTH];

static void receive_all(struct side *side, uint64_t key)
{
	for (uint32_t i = 0; i < MESSAGES; i++) {
		post(side, bytes, LENGTH, i);
		CHECK(await(side, &side->node.receives).error == 0);
		CHECK(has(bytes, LENGTH, key + i));
	}
}

static void send_all(struct side *side, uint64_t key)
{
	for (uint32_t i = 0; i < MESSAGES; i++) {
		fill(bytes, LENGTH, key + i);
		CHECK(start_send(side, bytes, LENGTH, i) == 0);
		CHECK(await(side, &side->node.sends).error == 0);
	}
}

/* The number of our calls while we receive and while we send, and of the peer's while it receives. */
struct counts {
	uint32_t receiving;
	uint32_t sending;
	uint32_t received;
};

/* Returns false if no such peer is possible on this machine. */
static bool talk_with(bool (*become)(void), struct counts *counts)
{
	struct region *region = world_region_with_heaps(2, SECTION_BYTES, HEAP_BYTES);
	struct side side = {0};
	int says[2];
	char is_ready = 'n';

	assert_int_equal(pipe(says), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		is_ready = become() ? 'y' : 'n';
		CHECK(write(says[1], &is_ready, 1) == 1);
		if (is_ready == 'n')
			_exit(0);
		join(&side, region, 1);
		send_all(&side, 100);
		calls = 0;
		receive_all(&side, 200);
		CHECK(write(says[1], &calls, sizeof(calls)) == sizeof(calls));
		node_close(&side.node);
		_exit(0);
	}
	assert_int_equal(read(says[0], &is_ready, 1), 1);
	if (is_ready == 'y') {
		join(&side, region, 0);
		calls = 0;
		receive_all(&side, 100);
		counts->receiving = calls;
		calls = 0;
		send_all(&side, 200);
		counts->sending = calls;
		assert_int_equal(read(says[0], &counts->received, sizeof(counts->received)),
				 sizeof(counts->received));
		node_close(&side.node);
	}
	assert_ended_well(child);
	(void)close(says[0]);
	(void)close(says[1]);
	region_detach(region);
	return is_ready == 'y';
}

/* With kernel.yama.ptrace_scope above 0 only an ancestor may trace a process, and the peer is a child. */
static bool may_be_traced_from_below(void)
{
	char scope = '0';
	int fd = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);

	if (fd >= 0 && read(fd, &scope, 1) != 1)
		scope = '1';
	if (fd >= 0)
		(void)close(fd);
	return scope == '0';
}

static void test_an_equal_peer(void **state)
{
	struct counts counts = {0};

	(void)state;
	assert_true(talk_with(stay_equal, &counts));
	assert_true(counts.receiving > 0);
	if (!may_be_traced_from_below())
		return;
	assert_true(counts.sending > 0);
	assert_true(counts.received > 0);
}

static void assert_left_alone(const char *what, bool (*become)(void))
{
	struct counts counts = {0};

	if (!talk_with(become, &counts)) {
		print_message("skipped, this process may not make it: %s\n", what);
		skip();
	}
	if (counts.receiving != 0 || counts.sending != 0)
		fail_msg("%s: %u calls while receiving, %u while sending", what, counts.receiving,
			 counts.sending);
}

static void test_another_user(void **state)
{
	(void)state;
	assert_left_alone("a peer of another user", be_another_user);
}

static void test_another_user_with_capabilities(void **state)
{
	(void)state;
	assert_left_alone("a peer of another user that has our capabilities",
			  be_another_user_with_capabilities);
}

static void test_another_effective_user(void **state)
{
	(void)state;
	assert_left_alone("a peer with another effective user", be_another_effective_user);
}

static void test_another_group(void **state)
{
	(void)state;
	assert_left_alone("a peer of another group", be_of_another_group);
}

static void test_fewer_capabilities(void **state)
{
	(void)state;
	assert_left_alone("a peer without CAP_SYS_PTRACE, which we have", have_fewer_capabilities);
}

static void test_a_user_namespace(void **state)
{
	(void)state;
	assert_left_alone("a peer in another user namespace", enter_user_namespace);
}

static void test_a_pid_namespace_below(void **state)
{
	(void)state;
	assert_left_alone("a peer in a PID namespace below ours", enter_pid_namespace);
}

/* The peer takes the offer and reads our memory. We decide not to write into its memory. */
static void test_a_sender_decides_too(void **state)
{
	struct counts counts = {0};

	(void)state;
	assert_int_equal(prctl(PR_SET_DUMPABLE, 0), 0);
	bool talked = talk_with(stay_equal, &counts);
	assert_int_equal(prctl(PR_SET_DUMPABLE, 1), 0);
	assert_true(talked);
	assert_int_equal(counts.receiving, 0);
	assert_int_equal(counts.sending, 0);
}

/* ---- a peer that withholds the pages of its buffer ---- */

static bool hold_pages(unsigned char *from, size_t length)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register range = {.range = {(uintptr_t)from, length},
					.mode = UFFDIO_REGISTER_MODE_MISSING};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	return fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0 && ioctl(fd, UFFDIO_REGISTER, &range) == 0;
}

/* Send the withheld buffer, and then do nothing. */
static void be_hostile(struct region *region, int says)
{
	const size_t early = (size_t)16 * REGION_PAGE;
	const size_t length = (LENGTH / REGION_PAGE + 1) * REGION_PAGE;
	unsigned char *held = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct side side = {0};

	CHECK(held != MAP_FAILED);
	memset(held, 1, early);
	char is_ready = hold_pages(held + early, length - early) && be_another_user() ? 'y' : 'n';
	CHECK(write(says, &is_ready, 1) == 1);
	if (is_ready == 'n')
		_exit(0);
	join(&side, region, 1);
	CHECK(start_send(&side, held, LENGTH, 1) == 0);
	/* Until it is killed. The limit holds if the test fails before that. */
	(void)sleep(HUNG_SECONDS);
	_exit(1);
}

static void test_a_peer_that_holds_pages_back(void **state)
{
	struct region *region = world_region_with_heaps(2, SECTION_BYTES, HEAP_BYTES);
	struct side side = {0};
	int says[2];
	char is_ready = 'n';

	(void)state;
	assert_int_equal(pipe(says), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0)
		be_hostile(region, says[1]);
	assert_int_equal(read(says[0], &is_ready, 1), 1);
	if (is_ready != 'y') {
		print_message("skipped: no userfaultfd of the kernel's accesses, or no other user, for this "
			      "process\n");
		assert_ended_well(child);
		skip();
	}
	(void)alarm(HUNG_SECONDS);
	calls = 0;
	join(&side, region, 0);
	post(&side, bytes, LENGTH, 1);
	while (match_is_empty(&side.node.messenger->incoming))
		side_progress(&side);
	/* The offer was taken: from here on the buffer would be read. All these calls return. */
	for (uint32_t i = 0; i < 1000; i++)
		(void)messenger_progress(side.node.messenger);
	assert_int_equal(calls, 0);
	assert_true(completion_is_empty(&side.node.receives));
	(void)kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(await(&side, &side.node.receives).error, ECONNRESET);
	(void)alarm(0);
	node_close(&side.node);
	(void)close(says[0]);
	(void)close(says[1]);
	region_detach(region);
}

/* ---- how a peer is identified ---- */

static void test_a_forked_child_has_no_secret(void **state)
{
	struct region *region = world_region_with_heaps(2, SECTION_BYTES, HEAP_BYTES);
	struct node node = {0};

	(void)state;
	node_open(&node, region);
	assert_int_equal(single_copy_open(node.messenger, SINGLE_COPY_ON), 0);
	const struct process_record *record = node.messenger->single->offer.record;
	assert_int_not_equal(record->secret, 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		CHECK(record->secret == 0 && record->transfers[0].line.secret == 0);
		_exit(0);
	}
	assert_ended_well(child);
	assert_int_not_equal(record->secret, 0);
	node_close(&node);
	region_detach(region);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_an_equal_peer),
		cmocka_unit_test(test_another_user),
		cmocka_unit_test(test_another_user_with_capabilities),
		cmocka_unit_test(test_another_effective_user),
		cmocka_unit_test(test_another_group),
		cmocka_unit_test(test_fewer_capabilities),
		cmocka_unit_test(test_a_user_namespace),
		cmocka_unit_test(test_a_pid_namespace_below),
		cmocka_unit_test(test_a_sender_decides_too),
		cmocka_unit_test(test_a_peer_that_holds_pages_back),
		cmocka_unit_test(test_a_forked_child_has_no_secret),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
