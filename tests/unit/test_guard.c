/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A region's file is truncated while it is in use: operations end in errors, without SIGBUS. Faults of other
 * memory stay with their handlers.
 */
#include "world.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared_name.h"

#define MEMBERS 4U
#define LENGTH 1000000U

struct file {
	char path[SHARED_NAME_BYTES];
	char name[96];
	int fd;
};

static void file_open(struct file *file)
{
	static const uint64_t id[2] = {3, 4};
	size_t bytes = region_size(MEMBERS, REGION_SECTION_MIN);

	shared_name(file->path);
	file->fd = mkostemp(file->path, O_CLOEXEC);
	assert_true(file->fd >= 0);
	(void)snprintf(file->name, sizeof(file->name), "file:%s", file->path);
	assert_int_equal(posix_fallocate(file->fd, 0, (off_t)bytes), 0);
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
	assert_ptr_not_equal(base, MAP_FAILED);
	assert_int_equal(region_format(base, bytes, MEMBERS, REGION_SECTION_MIN, id), 0);
	assert_int_equal(munmap(base, bytes), 0);
}

static void file_close(const struct file *file)
{
	assert_int_equal(close(file->fd), 0);
	(void)unlink(file->path);
}

static struct region *attach(const struct file *file)
{
	struct region *region = NULL;
	struct region_error error;

	if (region_attach(file->name, &region, &error) != 0)
		fail_msg("%s", error.text);
	return region;
}

/* Two members in the middle of everything, each with its own mapping. */
static void cut_while_sending(off_t length)
{
	static unsigned char source[LENGTH];
	static unsigned char target[LENGTH];
	struct world world = {.count = 2};
	struct file file;

	file_open(&file);
	for (uint32_t i = 0; i < 2; i++)
		node_open(&world.nodes[i], attach(&file));
	struct node *sender = &world.nodes[0];
	struct node *receiver = &world.nodes[1];
	assert_int_equal(node_receive(receiver, sender, target, LENGTH, 1, FI_TAGGED, target), 0);
	assert_int_equal(node_receive(receiver, sender, target, LENGTH, 2, FI_TAGGED, target), 0);
	assert_int_equal(node_send(sender, receiver, source, LENGTH, 1, FI_TAGGED, source), 0);
	for (uint32_t i = 0; i < 3; i++)
		world_step(&world);
	assert_int_equal(ftruncate(file.fd, length), 0);
	world_check_peers(&world);
	struct completion entry = world_await(&world, &sender->sends);
	assert_int_equal(entry.error, ECONNABORTED);
	assert_string_equal(entry.reason, "the region's file was truncated");
	for (int i = 0; i < 2; i++)
		assert_int_equal(world_await(&world, &receiver->receives).error, ECONNABORTED);
	for (uint32_t i = 0; i < 2; i++) {
		struct region *region = world.nodes[i].messenger->transport->attachments[0].region;
		assert_true(atomic_load(&region->cut));
		node_close(&world.nodes[i]);
		region_detach(region);
	}
	file_close(&file);
}

static void test_all_ends_in_error_when_the_file_is_cut(void **state)
{
	(void)state;
	cut_while_sending(0);
	cut_while_sending(4096); /* leaves the header, and cuts off the members */
	cut_while_sending(8191);
}

/*
 * Only sections beyond the end are missed: members whose sections remain could go on until they touch a
 * missing one.
 */
static void test_a_cut_section_is_like_all_of_it(void **state)
{
	struct file file;

	(void)state;
	file_open(&file);
	struct region *region = attach(&file);
	assert_int_equal(ftruncate(file.fd, (off_t)REGION_SECTIONS_OFFSET(MEMBERS)), 0);
	assert_false(atomic_load(&region->cut));
	assert_int_equal(shared_load_u64(&section_header(region, 2)->nonce), 0);
	assert_true(atomic_load(&region->cut));
	assert_int_equal(shared_load_u64(&((struct region_header *)(void *)region->base)->magic), 0);
	region_detach(region);
	file_close(&file);
}

/* ---- faults of other memory ---- */

static sigjmp_buf caught;
static volatile sig_atomic_t caught_count;

static void catch_plain(int number)
{
	(void)number;
	caught_count++;
	siglongjmp(caught, 1);
}

static void catch_with_information(int number, siginfo_t *information, void *context)
{
	(void)number;
	(void)information;
	(void)context;
	caught_count++;
	siglongjmp(caught, 1);
}

/* A page that raises SIGBUS when touched. */
static volatile unsigned char *bad_page(void)
{
	int fd = memfd_create("cut", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, REGION_PAGE), 0);
	void *page = mmap(NULL, REGION_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(page, MAP_FAILED);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(close(fd), 0);
	return page;
}

static void test_other_faults_go_to_the_handler_before(void **state)
{
	struct sigaction before;
	struct sigaction after;
	struct file file;
	volatile unsigned char *page = bad_page();

	(void)state;
	for (int kind = 0; kind < 2; kind++) {
		struct sigaction action = {.sa_flags = kind == 0 ? 0 : SA_SIGINFO};
		if (kind == 0)
			action.sa_handler = catch_plain;
		else
			action.sa_sigaction = catch_with_information;
		assert_int_equal(sigaction(SIGBUS, &action, &before), 0);
		file_open(&file);
		struct region *first = attach(&file);
		struct region *second = attach(&file);
		caught_count = 0;
		if (sigsetjmp(caught, 1) == 0)
			page[0] = 1;
		if (sigsetjmp(caught, 1) == 0)
			(void)raise(SIGBUS);
		assert_int_equal(caught_count, 2);
		assert_false(atomic_load(&first->cut));
		/* After the last region is detached, everything is as before. */
		region_detach(first);
		region_detach(second);
		assert_int_equal(sigaction(SIGBUS, NULL, &after), 0);
		assert_true(kind == 0 ? after.sa_handler == catch_plain
				      : after.sa_sigaction == catch_with_information);
		assert_int_equal(sigaction(SIGBUS, &before, NULL), 0);
		file_close(&file);
	}
	assert_int_equal(munmap((void *)(uintptr_t)page, REGION_PAGE), 0);
}

/* Without an earlier handler, SIGBUS ends the process as before. */
static void test_other_faults_kill_where_nobody_handles_them(void **state)
{
	struct file file;
	volatile unsigned char *page = bad_page();

	(void)state;
	file_open(&file);
	for (int sent = 0; sent < 2; sent++) {
		int status = 0;
		pid_t child = fork();
		assert_true(child >= 0);
		if (child == 0) {
			(void)signal(SIGBUS, SIG_DFL);
			(void)attach(&file);
			if (sent)
				(void)raise(SIGBUS);
			else
				page[0] = 1;
			_exit(0);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
	}
	assert_int_equal(munmap((void *)(uintptr_t)page, REGION_PAGE), 0);
	file_close(&file);
}

/* A handler that was installed after ours passes signals on to ours. Ours must not pass them back. */
static struct sigaction passed_on;

static void pass_on(int number, siginfo_t *information, void *context)
{
	if (++caught_count < 100)
		passed_on.sa_sigaction(number, information, context);
	else
		_exit(3);
}

static void test_handlers_after_ours_do_not_go_in_circles(void **state)
{
	struct file file;
	struct sigaction action = {.sa_flags = SA_SIGINFO};
	struct sigaction before;

	(void)state;
	action.sa_sigaction = pass_on;
	assert_int_equal(sigaction(SIGBUS, NULL, &before), 0);
	file_open(&file);
	struct region *region = attach(&file);
	assert_int_equal(sigaction(SIGBUS, &action, &passed_on), 0);
	region_detach(region);
	region = attach(&file);
	caught_count = 0;
	assert_int_equal(ftruncate(file.fd, 0), 0);
	assert_int_equal(shared_load_u64(&((struct region_header *)(void *)region->base)->magic), 0);
	assert_int_equal(caught_count, 1);
	region_detach(region);
	assert_int_equal(sigaction(SIGBUS, &before, NULL), 0);
	file_close(&file);
}

/* A process may map any number of regions: another can be mapped, and truncation of each is noticed. */
static void test_no_region_is_one_too_many(void **state)
{
	enum { MAPPINGS = 40 };
	struct region *regions[MAPPINGS];
	struct file file;

	(void)state;
	file_open(&file);
	for (uint32_t i = 0; i < MAPPINGS; i++)
		regions[i] = attach(&file);
	/* Slots of the table are used again. */
	region_detach(regions[3]);
	regions[3] = attach(&file);
	assert_int_equal(ftruncate(file.fd, 0), 0);
	for (uint32_t i = 0; i < MAPPINGS; i++) {
		assert_int_equal(shared_load_u64(&region_slot(regions[i], 0)->claim), 0);
		assert_true(atomic_load(&regions[i]->cut));
	}
	for (uint32_t i = 0; i < MAPPINGS; i++)
		region_detach(regions[i]);
	file_close(&file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_ends_in_error_when_the_file_is_cut),
		cmocka_unit_test(test_a_cut_section_is_like_all_of_it),
		cmocka_unit_test(test_no_region_is_one_too_many),
		cmocka_unit_test(test_other_faults_go_to_the_handler_before),
		cmocka_unit_test(test_other_faults_kill_where_nobody_handles_them),
		cmocka_unit_test(test_handlers_after_ours_do_not_go_in_circles),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
