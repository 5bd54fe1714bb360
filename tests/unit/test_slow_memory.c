/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A region whose memory is mapped uncached: an endpoint refuses it in one line with the remedy, or uses it if
 * that is allowed. This machine has no such memory, so the test says how slow the memory is.
 */
#include "world.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api/provider.h"
#include "shared_name.h"

#define MEMBERS 4U
#define BAR "/sys/bus/pci/devices/0000:00:04.0/resource2"

struct fi_provider *fi_prov_ini(void);

static double slower;
static int measurements;
static char bar[SHARED_NAME_BYTES]; /* the file that stands for the BAR */

double __wrap_member_measure(const struct member *self, double enough);
int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);

double __wrap_member_measure(const struct member *self, double enough)
{
	(void)self;
	(void)enough;
	measurements++;
	return slower;
}

int __wrap_open64(const char *path, int flags, ...)
{
	return __real_open64(strcmp(path, BAR) == 0 ? bar : path, flags, 0600);
}

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *vector;
static struct fid_cq *queue;

static int machine_open(void **state)
{
	static const uint64_t id[2] = {3, 4};
	size_t bytes = region_size(MEMBERS, REGION_SECTION_MIN);

	(void)state;
	shared_name(bar);
	int fd = mkostemp(bar, O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(posix_fallocate(fd, 0, (off_t)bytes), 0);
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(base, MAP_FAILED);
	assert_int_equal(region_format(base, bytes, MEMBERS, REGION_SECTION_MIN, id), 0);
	assert_int_equal(munmap(base, bytes), 0);
	assert_int_equal(close(fd), 0);
	assert_int_equal(setenv("VICINAL_REGION", "pci:0000:00:04.0", 1), 0);
	assert_int_equal(setenv("VICINAL_NET", "off", 1), 0);

	struct fi_provider *ours = fi_prov_ini();
	struct fi_cq_attr queue_attributes = {.format = FI_CQ_FORMAT_TAGGED};
	struct fi_av_attr vector_attributes = {.type = FI_AV_TABLE};
	assert_int_equal(ours->getinfo(FI_VERSION(1, 17), NULL, NULL, 0, NULL, &info), 0);
	assert_int_equal(ours->fabric(info->fabric_attr, &fabric, NULL), 0);
	assert_int_equal(fi_domain(fabric, info, &domain, NULL), 0);
	assert_int_equal(fi_av_open(domain, &vector_attributes, &vector, NULL), 0);
	assert_int_equal(fi_cq_open(domain, &queue_attributes, &queue, NULL), 0);
	return 0;
}

static int machine_close(void **state)
{
	(void)state;
	assert_int_equal(fi_close(&queue->fid), 0);
	assert_int_equal(fi_close(&vector->fid), 0);
	assert_int_equal(fi_close(&domain->fid), 0);
	assert_int_equal(fi_close(&fabric->fid), 0);
	fi_freeinfo(info);
	return unlink(bar);
}

/* Enable an endpoint. Returns its result, and the text on standard error. */
static int enable(char said[1024])
{
	struct fid_ep *endpoint = NULL;
	int errors = memfd_create("errors", MFD_CLOEXEC);
	int before = dup(STDERR_FILENO);

	assert_true(errors >= 0 && before >= 0);
	assert_int_equal(fi_endpoint(domain, info, &endpoint, NULL), 0);
	assert_int_equal(fi_ep_bind(endpoint, &vector->fid, 0), 0);
	assert_int_equal(fi_ep_bind(endpoint, &queue->fid, FI_TRANSMIT | FI_RECV), 0);
	measurements = 0;
	(void)fflush(stderr);
	assert_true(dup2(errors, STDERR_FILENO) >= 0);
	int result = fi_enable(endpoint);
	(void)fflush(stderr);
	assert_true(dup2(before, STDERR_FILENO) >= 0);
	assert_int_equal(measurements, 1);
	assert_int_equal(fi_close(&endpoint->fid), 0);
	ssize_t length = pread(errors, said, 1023, 0);
	assert_true(length >= 0);
	said[length] = '\0';
	assert_int_equal(close(errors), 0);
	assert_int_equal(close(before), 0);
	return result;
}

static void test_memory_as_it_should_be_is_used_silently(void **state)
{
	char said[1024];

	(void)state;
	slower = 19.0;
	assert_int_equal(enable(said), 0);
	assert_string_equal(said, "");
}

static void test_uncached_memory_is_refused_with_the_remedy(void **state)
{
	char said[1024];

	(void)state;
	slower = 123.4;
	assert_int_equal(enable(said), -FI_EIO);
	if (strncmp(said, "vicinal: error: ", 16) != 0 || strstr(said, "pci:0000:00:04.0") == NULL ||
	    strstr(said, "123 times slower") == NULL || strstr(said, "as an nvdimm (/dev/dax)") == NULL ||
	    strstr(said, "VICINAL_ALLOW_SLOW=1") == NULL || strchr(said, '\n') != said + strlen(said) - 1)
		fail_msg("the message is: %s", said);
}

static void test_uncached_memory_is_used_where_that_is_allowed(void **state)
{
	char said[1024];

	(void)state;
	slower = 123.4;
	assert_int_equal(setenv("VICINAL_ALLOW_SLOW", "1", 1), 0);
	assert_int_equal(enable(said), 0);
	assert_int_equal(unsetenv("VICINAL_ALLOW_SLOW"), 0);
	assert_null(strstr(said, "error"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory_as_it_should_be_is_used_silently),
		cmocka_unit_test(test_uncached_memory_is_refused_with_the_remedy),
		cmocka_unit_test(test_uncached_memory_is_used_where_that_is_allowed),
	};

	return cmocka_run_group_tests(tests, machine_open, machine_close);
}
