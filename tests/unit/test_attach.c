/* SPDX-License-Identifier: BSD-3-Clause */
/* Attaching: every unusable header and file is refused, with a reason and a remedy. */
#include "world.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared_name.h"

#define MEMBERS 4U

static const uint64_t region_id[2] = {7, 9};

/* ---- headers ---- */

static void spoil_magic(struct region_header *header)
{
	shared_store_u64(&header->magic, REGION_MAGIC + 1);
}

static void spoil_version_newer(struct region_header *header)
{
	shared_store_u32(&header->version, REGION_VERSION + 1);
}

static void spoil_version_none(struct region_header *header)
{
	shared_store_u32(&header->version, 0);
}

static void spoil_members_few(struct region_header *header)
{
	shared_store_u32(&header->members, REGION_MEMBERS_MIN - 1);
}

static void spoil_members_many(struct region_header *header)
{
	shared_store_u32(&header->members, REGION_MEMBERS_MAX + 1);
}

static void spoil_members_other(struct region_header *header)
{
	shared_store_u32(&header->members, MEMBERS + 1);
}

static void spoil_section_small(struct region_header *header)
{
	shared_store_u64(&header->section_bytes, REGION_SECTION_MIN - REGION_PAGE);
}

static void spoil_section_large(struct region_header *header)
{
	shared_store_u64(&header->section_bytes, (uint64_t)REGION_SECTION_MAX + REGION_PAGE);
}

static void spoil_section_odd(struct region_header *header)
{
	shared_store_u64(&header->section_bytes, REGION_SECTION_MIN + 64);
}

static void spoil_section_overflowing(struct region_header *header)
{
	shared_store_u64(&header->section_bytes, UINT64_MAX - REGION_PAGE + 1);
}

/* Large enough for some members, but not for this number of members. */
static void spoil_section_for_its_members(struct region_header *header)
{
	shared_store_u32(&header->members, REGION_MEMBERS_MAX);
}

static void spoil_heap_odd(struct region_header *header)
{
	shared_store_u64(&header->heap_bytes, 64);
}

/* The heap takes the bytes that the tables and chunks need. */
static void spoil_heap_large(struct region_header *header)
{
	shared_store_u64(&header->heap_bytes, REGION_PAGE);
}

static void spoil_heap_overflowing(struct region_header *header)
{
	shared_store_u64(&header->heap_bytes, UINT64_MAX - REGION_PAGE + 1);
}

/* Sections agree with their heaps, but are larger than any region. */
static void spoil_heap_consistently(struct region_header *header)
{
	shared_store_u64(&header->section_bytes, REGION_SECTION_MIN + REGION_HEAP_MAX);
	shared_store_u64(&header->heap_bytes, REGION_HEAP_MAX);
	shared_store_u64(&header->region_bytes, region_size(MEMBERS, REGION_SECTION_MIN + REGION_HEAP_MAX));
}

static void spoil_heap_beyond_its_bound(struct region_header *header)
{
	shared_store_u64(&header->section_bytes, REGION_SECTION_MIN + REGION_HEAP_MAX + REGION_PAGE);
	shared_store_u64(&header->heap_bytes, REGION_HEAP_MAX + REGION_PAGE);
	shared_store_u64(&header->region_bytes,
			 region_size(MEMBERS, REGION_SECTION_MIN + REGION_HEAP_MAX + REGION_PAGE));
}

static void spoil_sections_offset(struct region_header *header)
{
	shared_store_u64(&header->sections_offset, REGION_SECTIONS_OFFSET(MEMBERS) + REGION_PAGE);
}

static void spoil_region_bytes(struct region_header *header)
{
	shared_store_u64(&header->region_bytes, region_size(MEMBERS, REGION_SECTION_MIN) - 1);
}

/* The header agrees with itself, but not with the size of the file. */
static void spoil_consistently(struct region_header *header)
{
	shared_store_u64(&header->section_bytes, 2 * (uint64_t)REGION_SECTION_MIN);
	shared_store_u64(&header->region_bytes, region_size(MEMBERS, 2 * (uint64_t)REGION_SECTION_MIN));
}

static const struct {
	void (*spoil)(struct region_header *header);
	int code;
	const char *says;
} spoilt_headers[] = {
	{spoil_magic, -ENODATA, "magic"},
	{spoil_version_newer, -EPROTONOSUPPORT, "version 4 and this provider knows version 3"},
	{spoil_version_none, -EPROTONOSUPPORT, "version 0 and this provider knows version 3"},
	{spoil_members_few, -EINVAL, "1 member slots"},
	{spoil_members_many, -EINVAL, "513 member slots"},
	{spoil_members_other, -EINVAL, "contradicts itself"},
	{spoil_section_small, -EINVAL, "sections of 258048 bytes"},
	{spoil_section_large, -EINVAL, "sections of 1073745920 bytes"},
	{spoil_section_odd, -EINVAL, "sections of 262208 bytes"},
	{spoil_section_overflowing, -EINVAL, "not possible"},
	{spoil_section_for_its_members, -EINVAL, "sections of 262144 bytes"},
	{spoil_heap_odd, -EINVAL, "64 of them heap"},
	{spoil_heap_large, -EINVAL, "4096 of them heap"},
	{spoil_heap_overflowing, -EINVAL, "not possible"},
	{spoil_heap_consistently, -EINVAL, "truncated"},
	{spoil_heap_beyond_its_bound, -EINVAL, "not possible"},
	{spoil_sections_offset, -EINVAL, "contradicts itself"},
	{spoil_region_bytes, -EINVAL, "contradicts itself"},
	{spoil_consistently, -EINVAL, "truncated"},
};

static void test_spoilt_headers_are_refused(void **state)
{
	size_t bytes = region_size(MEMBERS, REGION_SECTION_MIN);
	void *base = aligned_alloc(REGION_PAGE, bytes);
	struct region region;
	struct region_error error;

	(void)state;
	assert_non_null(base);
	for (size_t i = 0; i < sizeof(spoilt_headers) / sizeof(spoilt_headers[0]); i++) {
		memset(base, 0, bytes);
		assert_int_equal(region_format(base, bytes, MEMBERS, REGION_SECTION_MIN, region_id), 0);
		assert_int_equal(region_check_header(base, bytes, &region, &error), 0);
		spoilt_headers[i].spoil(base);
		assert_int_equal(region_check_header(base, bytes, &region, &error), spoilt_headers[i].code);
		if (strstr(error.text, spoilt_headers[i].says) == NULL)
			fail_msg("case %zu: the message is: %s", i, error.text);
		assert_non_null(strstr(error.text, "create"));
	}
	free(base);
}

static void test_a_good_header_gives_the_geometry(void **state)
{
	struct region *region = world_region(5, REGION_SECTION_MIN + REGION_PAGE);

	(void)state;
	assert_int_equal(region->members, 5);
	assert_int_equal(region->section_bytes, REGION_SECTION_MIN + REGION_PAGE);
	assert_int_equal(region->sections_offset, REGION_SECTIONS_OFFSET(5));
	assert_int_equal(region->id[0], UINT64_C(0x0123456789abcdef));
	assert_int_equal(region->id[1], UINT64_C(0xfedcba9876543210));
	region_detach(region);
}

/* A random header is either refused, or everything that it allows lies inside `bytes`. */
static void test_random_headers_never_reach_beyond_the_mapping(void **state)
{
	static const uint32_t members[] = {0, 1, 2, 3, 4, 511, 512, 513, 1024, UINT32_MAX};
	static const uint64_t sections[] = {0, 4096, 258048, 262144, 266240, 1U << 30, UINT64_MAX - 4095};
	static const uint64_t heaps[] = {0, 0, 64, 4096, 262144, REGION_HEAP_MAX, UINT64_MAX - 4095};
	uint64_t seed = 20261;
	size_t bytes = region_size(MEMBERS, REGION_SECTION_MIN);
	struct region_header *header = aligned_alloc(REGION_PAGE, REGION_PAGE);
	struct region_error error;
	uint32_t accepted = 0;

	(void)state;
	assert_non_null(header);
	memset((void *)header, 0, REGION_PAGE);
	for (int i = 0; i < 200000; i++) {
		struct region region = {0};
		uint32_t count = members[random_below(&seed, 10)];
		uint64_t section = sections[random_below(&seed, 7)];
		shared_store_u64(&header->magic, REGION_MAGIC);
		shared_store_u32(&header->version,
				 random_below(&seed, 8) == 0 ? REGION_VERSION - 1 : REGION_VERSION);
		shared_store_u32(&header->members, count);
		shared_store_u64(&header->section_bytes, section);
		shared_store_u64(&header->heap_bytes, heaps[random_below(&seed, 7)]);
		shared_store_u64(&header->sections_offset, random_below(&seed, 2) == 0
								   ? REGION_SECTIONS_OFFSET((uint64_t)count)
								   : next_random(&seed));
		shared_store_u64(&header->region_bytes, random_below(&seed, 2) == 0
								? region_size(count, section)
								: next_random(&seed));
		if (region_check_header(header, bytes, &region, &error) != 0)
			continue;
		accepted++;
		assert_true(region.members >= REGION_MEMBERS_MIN && region.members <= REGION_MEMBERS_MAX);
		assert_true(region.sections_offset + region.members * region.section_bytes <= bytes);
		assert_true(region.heap_bytes < region.section_bytes);
		assert_true(SECTION_BYTES_MIN(region.members) <= section_arena_end(&region));
	}
	assert_true(accepted > 0);
	free(header);
}

static void test_formats_beyond_the_bounds_are_refused(void **state)
{
	size_t bytes = region_size(MEMBERS, REGION_SECTION_MIN);
	void *base = aligned_alloc(REGION_PAGE, bytes);

	(void)state;
	assert_non_null(base);
	memset(base, 0, bytes);
	assert_int_equal(region_format(base, bytes - 1, MEMBERS, REGION_SECTION_MIN, region_id), -EINVAL);
	assert_int_equal(region_format(base, bytes, 1, REGION_SECTION_MIN, region_id), -EINVAL);
	assert_int_equal(region_format_heaps(base, bytes, MEMBERS, REGION_SECTION_MIN, REGION_PAGE,
					     region_id),
			 -EINVAL);
	assert_int_equal(region_format(base, SIZE_MAX, 513, REGION_SECTION_MIN, region_id), -EINVAL);
	assert_int_equal(region_format(base, bytes, MEMBERS, REGION_SECTION_MIN + 1, region_id), -EINVAL);
	assert_int_equal(region_format(base, bytes, 2, REGION_SECTION_MIN - REGION_PAGE, region_id), -EINVAL);
	assert_int_equal(region_format(base, SIZE_MAX, REGION_MEMBERS_MAX, REGION_SECTION_MIN, region_id),
			 -EINVAL);
	assert_int_equal(((const uint64_t *)base)[0], 0);
	free(base);
}

/* ---- files ---- */

struct file {
	char directory[SHARED_NAME_BYTES];
	char path[96];
	char name[112];
};

static void file_open(struct file *file)
{
	shared_name(file->directory);
	assert_non_null(mkdtemp(file->directory));
	(void)snprintf(file->path, sizeof(file->path), "%s/region", file->directory);
	(void)snprintf(file->name, sizeof(file->name), "file:%s", file->path);
}

static void file_close(const struct file *file)
{
	(void)unlink(file->path);
	assert_int_equal(rmdir(file->directory), 0);
}

/* A region's file of `bytes`, reserved or with holes. It holds a header for MEMBERS. */
static void file_write(const struct file *file, size_t bytes, bool reserved)
{
	size_t whole = region_size(MEMBERS, REGION_SECTION_MIN);
	unsigned char *memory = calloc(1, whole);
	int fd = open(file->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_non_null(memory);
	assert_true(fd >= 0);
	if (reserved && bytes > 0)
		assert_int_equal(posix_fallocate(fd, 0, (off_t)bytes), 0);
	else
		assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	assert_int_equal(region_format(memory, whole, MEMBERS, REGION_SECTION_MIN, region_id), 0);
	size_t header = bytes < REGION_PAGE ? bytes : REGION_PAGE;
	assert_int_equal(pwrite(fd, memory, header, 0), (ssize_t)header);
	assert_int_equal(close(fd), 0);
	free(memory);
}

/* The same with sparse heaps. Of each section, `reserved` bytes are reserved. */
static void file_write_sparse(const struct file *file, size_t reserved)
{
	const uint64_t heap_bytes = 64 * REGION_PAGE;
	const uint64_t section_bytes = REGION_SECTION_MIN + heap_bytes;
	size_t whole = region_size(MEMBERS, section_bytes);
	unsigned char *memory = calloc(1, whole);
	int fd = open(file->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_non_null(memory);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)whole), 0);
	assert_int_equal(posix_fallocate(fd, 0, REGION_SECTIONS_OFFSET(MEMBERS)), 0);
	for (uint32_t slot = 0; slot < MEMBERS; slot++)
		assert_int_equal(
			posix_fallocate(fd, (off_t)(REGION_SECTIONS_OFFSET(MEMBERS) + slot * section_bytes),
					(off_t)reserved),
			0);
	assert_int_equal(region_format_heaps(memory, whole, MEMBERS, section_bytes, heap_bytes, region_id),
			 0);
	shared_store_u32(&((struct region_header *)(void *)memory)->sparse_heaps, 1);
	assert_int_equal(pwrite(fd, memory, REGION_PAGE, 0), REGION_PAGE);
	assert_int_equal(close(fd), 0);
	free(memory);
}

static void assert_refused(const char *name, int code, const char *says)
{
	struct region *region = NULL;
	struct region_error error = {""};

	assert_int_equal(region_attach(name, &region, &error), code);
	assert_null(region);
	if (strstr(error.text, says) == NULL)
		fail_msg("the message is: %s", error.text);
	assert_null(strchr(error.text, '\n'));
}

/* A file that holds a valid region. */
static void file_open_good(struct file *file)
{
	file_open(file);
	file_write(file, region_size(MEMBERS, REGION_SECTION_MIN), true);
}

static void test_a_good_file_is_attached(void **state)
{
	struct file file;
	struct region *region = NULL;
	struct region_error error;

	(void)state;
	file_open_good(&file);
	if (region_attach(file.name, &region, &error) != 0)
		fail_msg("%s", error.text);
	assert_int_equal(region->members, MEMBERS);
	assert_int_equal(region->kind, REGION_FILE);
	assert_string_equal(region->path, file.path);
	assert_string_equal(region->name, file.name);
	region_detach(region);
	file_close(&file);
}

/* Only the heaps may have no memory yet. */
static void test_a_file_with_sparse_heaps(void **state)
{
	struct file file;
	struct region *region = NULL;
	struct region_error error;

	(void)state;
	file_open(&file);
	file_write_sparse(&file, REGION_SECTION_MIN);
	assert_int_equal(region_attach(file.name, &region, &error), 0);
	assert_true(region->sparse_heaps);
	region_detach(region);
	file_write_sparse(&file, REGION_SECTION_MIN - REGION_PAGE);
	assert_refused(file.name, -ENOSPC, "backed by memory");
	file_close(&file);
}

static void test_files_that_cannot_be_regions_are_refused(void **state)
{
	size_t whole = region_size(MEMBERS, REGION_SECTION_MIN);
	struct file file;
	char text[128];

	(void)state;
	file_open(&file);
	assert_refused(file.name, -ENOENT, "does not exist");
	file_write(&file, 0, true);
	assert_refused(file.name, -ENODATA, "too few for a region");
	file_write(&file, 1000, true);
	assert_refused(file.name, -ENODATA, "too few for a region");
	file_write(&file, whole - REGION_PAGE, true);
	assert_refused(file.name, -EINVAL, "truncated");
	file_write(&file, whole, false);
	assert_refused(file.name, -ENOSPC, "backed by memory");
	assert_int_equal(unlink(file.path), 0);
	assert_int_equal(mkfifo(file.path, 0600), 0);
	assert_refused(file.name, -EINVAL, "not a regular file");
	assert_int_equal(unlink(file.path), 0);
	assert_int_equal(symlink("/dev/zero", file.path), 0);
	assert_refused(file.name, -ELOOP, "cannot be opened");
	(void)snprintf(text, sizeof(text), "file:%s", file.directory);
	assert_refused(text, -EISDIR, "cannot be opened");
	file_close(&file);
}

static void test_a_file_of_another_user_is_refused(void **state)
{
	struct file file;

	(void)state;
	if (geteuid() != 0) {
		print_message("skipped: only root can give a file to another user\n");
		skip();
	}
	file_open_good(&file);
	assert_int_equal(chown(file.path, 65534, 65534), 0);
	assert_refused(file.name, -EPERM, "belongs to user 65534");
	file_close(&file);
}

static void test_a_file_that_others_may_open_is_refused(void **state)
{
	static const mode_t modes[] = {0640, 0620, 0604, 0602, 0610, 0601, 0666};
	struct file file;
	struct region *region = NULL;
	struct region_error error;

	(void)state;
	file_open_good(&file);
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		assert_int_equal(chmod(file.path, modes[i]), 0);
		assert_refused(file.name, -EPERM, "open to other users (mode 06");
	}
	assert_int_equal(chmod(file.path, 0600), 0);
	assert_int_equal(region_attach(file.name, &region, &error), 0);
	region_detach(region);
	file_close(&file);
}

static void test_names_that_mean_nothing_are_refused(void **state)
{
	static char path[2 * PATH_MAX];

	(void)state;
	assert_refused("", -EINVAL, "not understood");
	assert_refused("file:", -EINVAL, "not understood");
	assert_refused("file:relative", -EINVAL, "not understood");
	assert_refused("/dev/shm/region", -EINVAL, "not understood");
	assert_refused("pci:", -EINVAL, "not understood");
	assert_refused("pci:../../../etc/passwd", -EINVAL, "not understood");
	assert_refused("pci:ffff:ff:1f.7", -ENOENT, "no PCI device");
	(void)snprintf(path, sizeof(path), "file:/%0*d", PATH_MAX, 0);
	assert_refused(path, -ENAMETOOLONG, "longer than a path");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spoilt_headers_are_refused),
		cmocka_unit_test(test_a_good_header_gives_the_geometry),
		cmocka_unit_test(test_random_headers_never_reach_beyond_the_mapping),
		cmocka_unit_test(test_formats_beyond_the_bounds_are_refused),
		cmocka_unit_test(test_a_good_file_is_attached),
		cmocka_unit_test(test_a_file_with_sparse_heaps),
		cmocka_unit_test(test_files_that_cannot_be_regions_are_refused),
		cmocka_unit_test(test_a_file_of_another_user_is_refused),
		cmocka_unit_test(test_a_file_that_others_may_open_is_refused),
		cmocka_unit_test(test_names_that_mean_nothing_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
