/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions in /dev/dax and in a memory module's file, and the choice of a device without a name.
 *
 * This machine has no such device. The provider's calls on /sys and /dev are redirected to a directory of the
 * test. A file stands for each device, and fstat() shows it as a device.
 */
#include "world.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "region/dax.h"
#include "region/member.h"
#include "shared_name.h"

#define MEMBERS 4U
#define HUGE ((size_t)2 << 20)
#define SECOND UINT64_C(1000000000)
#define DAX_MAJOR 252U
#define DEVICES_MAX 4U

static const uint64_t region_id[2] = {7, 9};

/* ---- the machine ---- */

static char root[SHARED_NAME_BYTES];
static const char *forbidden; /* a device that this user may not open */
static struct {
	ino_t file;
	off_t data; /* the offset in its file at which the device begins */
} devices[DEVICES_MAX];
static uint32_t device_count;

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
FILE *__real_fopen64(const char *path, const char *mode);
FILE *__wrap_fopen64(const char *path, const char *mode);
DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);
ssize_t __real_readlink(const char *path, char *target, size_t length);
ssize_t __wrap_readlink(const char *path, char *target, size_t length);
int __real_access(const char *path, int mode);
int __wrap_access(const char *path, int mode);
int __real_fstat64(int fd, struct stat *status);
int __wrap_fstat64(int fd, struct stat *status);
void *__real_mmap64(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);

static const char *lead(const char *path, char where[PATH_MAX])
{
	static const char *const led[] = {"/sys/bus/", "/sys/dev/", "/dev/dax", "/run/vicinal/",
					  "/dev/shm/vicinal-region"};

	for (size_t i = 0; i < sizeof(led) / sizeof(led[0]); i++)
		if (strncmp(path, led[i], strlen(led[i])) == 0) {
			(void)snprintf(where, PATH_MAX, "%s%s", root, path);
			return where;
		}
	return path;
}

int __wrap_open64(const char *path, int flags, ...)
{
	char where[PATH_MAX];

	if (forbidden != NULL && strcmp(path, forbidden) == 0) {
		errno = EACCES;
		return -1;
	}
	return __real_open64(lead(path, where), flags, 0600);
}

FILE *__wrap_fopen64(const char *path, const char *mode)
{
	char where[PATH_MAX];

	return __real_fopen64(lead(path, where), mode);
}

DIR *__wrap_opendir(const char *path)
{
	char where[PATH_MAX];

	return __real_opendir(lead(path, where));
}

ssize_t __wrap_readlink(const char *path, char *target, size_t length)
{
	char where[PATH_MAX];

	return __real_readlink(lead(path, where), target, length);
}

int __wrap_access(const char *path, int mode)
{
	char where[PATH_MAX];

	return __real_access(lead(path, where), mode);
}

/* The index of the device for which a file stands, or device_count. */
static uint32_t find_device(ino_t file)
{
	uint32_t number = 0;

	while (number < device_count && devices[number].file != file)
		number++;
	return number;
}

int __wrap_fstat64(int fd, struct stat *status)
{
	int result = __real_fstat64(fd, status);
	uint32_t number = result == 0 ? find_device(status->st_ino) : device_count;

	if (number < device_count) {
		status->st_mode = S_IFCHR | 0660;
		status->st_rdev = makedev(DAX_MAJOR, number);
		status->st_size = 0;
	}
	return result;
}

void *__wrap_mmap64(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	struct stat status;

	if (fd >= 0 && __real_fstat64(fd, &status) == 0 && find_device(status.st_ino) < device_count)
		offset += devices[find_device(status.st_ino)].data;
	return __real_mmap64(address, bytes, protection, flags, fd, offset);
}

__attribute__((format(printf, 1, 2))) static char *in_root(const char *format, ...)
{
	static char path[PATH_MAX];
	int length = snprintf(path, sizeof(path), "%s", root);
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(path + length, sizeof(path) - (size_t)length, format, arguments);
	va_end(arguments);
	return path;
}

static void make_parents(char *path)
{
	for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		(void)mkdir(path, 0700);
		*slash = '/';
	}
}

static void write_text(char *path, const char *text)
{
	make_parents(path);
	FILE *file = fopen(path, "we");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static int machine_open(void **state)
{
	(void)state;
	shared_name(root);
	device_count = 0;
	forbidden = NULL;
	return mkdtemp(root) == NULL;
}

static int machine_close(void **state)
{
	char command[128];

	(void)state;
	(void)snprintf(command, sizeof(command), "rm -r -- '%s'", root);
	return system(command); /* NOLINT(cert-env33-c): the test's own directory */
}

/* ---- memory, and what is in it ---- */

static int make_file(char *path, size_t bytes)
{
	make_parents(path);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(posix_fallocate(fd, 0, (off_t)bytes), 0);
	return fd;
}

static void put_region(int fd, size_t offset, uint32_t version)
{
	size_t bytes = region_size(MEMBERS, REGION_SECTION_MIN);
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);

	assert_ptr_not_equal(base, MAP_FAILED);
	assert_int_equal(region_format(base, bytes, MEMBERS, REGION_SECTION_MIN, region_id), 0);
	shared_store_u32(&((struct region_header *)base)->version, version);
	assert_int_equal(munmap(base, bytes), 0);
}

static void put_info(int fd, uint64_t data_offset, uint32_t start_pad)
{
	unsigned char info[128] = DAX_INFO_SIGNATURE;
	const uint16_t version[2] = {1, 4};

	memcpy(info + 52, version, sizeof(version));
	memcpy(info + 56, &data_offset, sizeof(data_offset));
	memcpy(info + 76, &start_pad, sizeof(start_pad));
	assert_int_equal(pwrite(fd, info, sizeof(info), DAX_INFO_OFFSET), (ssize_t)sizeof(info));
}

/* Returns a descriptor of the file that stands for the device. */
static int add_dax(const char *name, const char *size, const char *align)
{
	uint32_t number = device_count;
	struct stat status;
	int fd = make_file(in_root("/dev/%s", name), 2 * HUGE);

	assert_int_equal(__real_fstat64(fd, &status), 0);
	devices[number].file = status.st_ino;
	devices[number].data = 0;
	write_text(in_root("/sys/bus/dax/devices/%s", name), "");
	write_text(in_root("/sys/dev/char/%u:%u/size", DAX_MAJOR, number), size);
	write_text(in_root("/sys/dev/char/%u:%u/align", DAX_MAJOR, number), align);
	assert_int_equal(symlink("../../../../bus/dax",
				 in_root("/sys/dev/char/%u:%u/subsystem", DAX_MAJOR, number)),
			 0);
	device_count++;
	return fd;
}

static int add_ivshmem(const char *address)
{
	write_text(in_root("/sys/bus/pci/devices/%s/vendor", address), "0x1af4\n");
	write_text(in_root("/sys/bus/pci/devices/%s/device", address), "0x1110\n");
	return make_file(in_root("/sys/bus/pci/devices/%s/resource2", address), 2 * HUGE);
}

static struct region *attach(const char *name)
{
	struct region *region = NULL;
	struct region_error error;

	if (region_attach(name, &region, &error) != 0)
		fail_msg("%s: %s", name, error.text);
	return region;
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

static void assert_found(const char *expected)
{
	char name[PATH_MAX] = "";
	struct region_error error = {""};

	if (region_discover(name, &error) != 0)
		fail_msg("no device is found: %s", error.text);
	assert_string_equal(name, expected);
}

static void assert_not_found(int code, const char *says)
{
	char name[PATH_MAX] = "";
	struct region_error error = {""};

	assert_int_equal(region_discover(name, &error), code);
	if (strstr(error.text, says) == NULL)
		fail_msg("the message is: %s", error.text);
}

/* ---- /dev/dax by its name ---- */

static void test_a_device_with_a_region_is_attached(void **state)
{
	int fd = add_dax("dax0.0", "4194304\n", "2097152\n");

	(void)state;
	put_region(fd, 0, REGION_VERSION);
	struct region *region = attach("dax:/dev/dax0.0");
	assert_int_equal(region->kind, REGION_DAX);
	assert_int_equal(region->bytes, 2 * HUGE);
	assert_int_equal(region->members, MEMBERS);
	assert_string_equal(region->path, "/dev/dax0.0");
	region_detach(region);
	assert_int_equal(close(fd), 0);
}

static void test_what_is_no_dax_device_is_refused(void **state)
{
	(void)state;
	assert_refused("dax:", -EINVAL, "not understood");
	assert_refused("dax:dax0.0", -EINVAL, "not understood");
	assert_refused("dax:/dev/dax0.0", -ENOENT, "no DAX device /dev/dax0.0");
	assert_refused("dax:/dev/zero", -EINVAL, "/dev/zero is not a DAX device");
	assert_int_equal(close(make_file(in_root("/dev/dax0.0"), 2 * HUGE)), 0);
	assert_refused("dax:/dev/dax0.0", -EINVAL, "not a DAX device");
}

static void test_sizes_that_cannot_be_are_refused(void **state)
{
	static const char *const sizes[] = {"",          "0\n", "-1\n", "many\n", "99999999999999999999\n",
					    " 4194304\n"};
	int fd = add_dax("dax0.0", "4194304\n", "2097152\n");
	char *size = strdup(in_root("/sys/dev/char/%u:0/size", DAX_MAJOR));

	(void)state;
	put_region(fd, 0, REGION_VERSION);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		write_text(size, sizes[i]);
		assert_refused("dax:/dev/dax0.0", -EINVAL, "has no memory");
	}
	write_text(size, "2097153\n");
	assert_refused("dax:/dev/dax0.0", -EINVAL, "no multiple of its alignment");
	write_text(in_root("/sys/dev/char/%u:0/align", DAX_MAJOR), "4096\n");
	write_text(size, "4096\n");
	assert_refused("dax:/dev/dax0.0", -EINVAL, "truncated");
	free(size);
	assert_int_equal(close(fd), 0);
}

/* The memory has an owner, and its contents may be all that the owner has. */
static void test_memory_that_holds_something_else_stays_as_it_is(void **state)
{
	unsigned char *before = malloc(2 * HUGE);
	unsigned char *after = malloc(2 * HUGE);
	int fd = add_dax("dax0.0", "4194304\n", "2097152\n");
	uint64_t seed = 4711;

	(void)state;
	for (size_t i = 0; i < 2 * HUGE / sizeof(uint64_t); i++)
		((uint64_t *)(void *)before)[i] = next_random(&seed);
	assert_int_equal(pwrite(fd, before, 2 * HUGE, 0), (ssize_t)(2 * HUGE));
	assert_refused("dax:/dev/dax0.0", -ENODATA, "magic");
	assert_not_found(-ENODEV, "magic");
	/* Memory that claims to be a region of a later version may not be written either. */
	put_region(fd, 0, REGION_VERSION + 1);
	assert_int_equal(pread(fd, before, 2 * HUGE, 0), (ssize_t)(2 * HUGE));
	assert_refused("dax:/dev/dax0.0", -EPROTONOSUPPORT, "version 3");
	assert_int_equal(pread(fd, after, 2 * HUGE, 0), (ssize_t)(2 * HUGE));
	assert_memory_equal(before, after, 2 * HUGE);
	free(before);
	free(after);
	assert_int_equal(close(fd), 0);
}

/* ---- a memory module's file ---- */

static void test_a_region_in_a_module_begins_where_its_info_block_says(void **state)
{
	int fd = make_file(in_root("/module"), 2 * HUGE);
	char *name = strdup(in_root("/module"));
	char text[PATH_MAX];

	(void)state;
	(void)snprintf(text, sizeof(text), "file:%s", name);
	put_info(fd, HUGE, 0);
	assert_refused(text, -ENODATA, "magic");
	put_region(fd, HUGE, REGION_VERSION);
	struct region *region = attach(text);
	assert_int_equal(region->offset, HUGE);
	assert_int_equal(region->bytes, HUGE);
	/* A forked child's own copy has the same bytes. */
	region_after_fork(region);
	assert_int_equal(shared_load_u64(&((struct region_header *)(void *)region->base)->magic),
			 REGION_MAGIC);
	region_detach(region);
	put_info(fd, HUGE - REGION_PAGE, REGION_PAGE);
	region = attach(text);
	assert_int_equal(region->offset, HUGE);
	region_detach(region);
	/* A region at the beginning is a region, whatever its slot table contains. */
	put_region(fd, 0, REGION_VERSION);
	region = attach(text);
	assert_int_equal(region->offset, 0);
	region_detach(region);
	free(name);
	assert_int_equal(close(fd), 0);
}

static void test_info_blocks_that_cannot_be_are_not_followed(void **state)
{
	static const struct {
		uint64_t data_offset;
		uint32_t start_pad;
	} wrong[] = {
		{0, 0},
		{4096, 0},
		{HUGE + 1, 0},
		{2 * HUGE, 0},
		{UINT64_MAX, 0},
		{UINT64_MAX - 4095, 0},
		{HUGE, (uint32_t)HUGE},
		{HUGE, UINT32_MAX},
		{UINT64_MAX, 8192},
		{HUGE, 1},
	};
	int fd = make_file(in_root("/module"), 2 * HUGE);

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		put_info(fd, wrong[i].data_offset, wrong[i].start_pad);
		assert_int_equal(dax_data_offset(fd, 2 * HUGE), 0);
	}
	put_info(fd, 2 * HUGE - REGION_PAGE, 0);
	assert_int_equal(dax_data_offset(fd, 2 * HUGE), 2 * HUGE - REGION_PAGE);
	assert_int_equal(ftruncate(fd, DAX_INFO_OFFSET + 20), 0);
	assert_int_equal(dax_data_offset(fd, DAX_INFO_OFFSET + 20), 0);
	assert_int_equal(close(fd), 0);
}

/* One member maps the file, as a container would. The other maps the device that a guest has of it. */
static void test_members_of_both_kinds_meet(void **state)
{
	int fd = add_dax("dax0.0", "2097152\n", "2097152\n");
	struct region_error error;
	struct member *of_file = NULL;
	struct member *of_device = NULL;
	struct last_heartbeat last_heartbeat = {0};
	char name[PATH_MAX];

	(void)state;
	put_info(fd, HUGE, 0);
	put_region(fd, HUGE, REGION_VERSION);
	devices[0].data = HUGE;
	struct region *device = attach("dax:/dev/dax0.0");
	uint32_t count = device_count;
	device_count = 0; /* on the host it is only a file */
	(void)snprintf(name, sizeof(name), "file:%s", in_root("/dev/dax0.0"));
	struct region *file = attach(name);
	assert_int_equal(member_join(file, 0, SECOND, &of_file, &error), 0);
	device_count = count;
	assert_int_equal(member_join(device, 0, SECOND, &of_device, &error), 0);
	assert_memory_equal(file->id, device->id, sizeof(file->id));
	assert_int_not_equal(of_file->slot, of_device->slot);
	assert_int_equal(shared_load_u32(&section_header(file, of_file->slot)->liveness), LIVENESS_LOCK);
	struct section_header *header = section_header(file, of_device->slot);
	assert_int_equal(shared_load_u32(&header->liveness), LIVENESS_HEARTBEAT);
	/*
	 * The file's member sees the other's heartbeat, and sees it die. The other takes the file's member
	 * for alive.
	 */
	uint64_t beat = shared_load_u64(&header->heartbeat);
	/* At least a minute, only against hanging. */
	for (int i = 0; i < 60000 && shared_load_u64(&header->heartbeat) == beat; i++)
		assert_int_equal(usleep(1000), 0);
	assert_true(shared_load_u64(&header->heartbeat) != beat);
	assert_int_equal(member_observe(of_file, of_device->slot, of_device->epoch, &last_heartbeat, SECOND,
					SECOND),
			 MEMBER_ALIVE);
	struct last_heartbeat other = {0};
	assert_int_equal(member_observe(of_device, of_file->slot, of_file->epoch, &other, SECOND, SECOND),
			 MEMBER_ALIVE);
	assert_int_equal(member_observe(of_device, of_file->slot, of_file->epoch, &other, 9 * SECOND, SECOND),
			 MEMBER_ALIVE);
	member_leave(of_device);
	member_leave(of_file);
	region_detach(device);
	region_detach(file);
	assert_int_equal(close(fd), 0);
}

/* As after unplugging: the kernel answers with SIGBUS, which must not end the process. */
static void test_a_device_can_be_taken_away(void **state)
{
	int device = add_dax("dax0.0", "4194304\n", "2097152\n");
	int bar = add_ivshmem("0000:00:02.0");

	(void)state;
	put_region(device, 0, REGION_VERSION);
	put_region(bar, 0, REGION_VERSION);
	struct region *regions[2] = {attach("dax:/dev/dax0.0"), attach("pci:0000:00:02.0")};
	assert_int_equal(ftruncate(device, 0), 0);
	assert_int_equal(ftruncate(bar, 0), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(shared_load_u64(&section_header(regions[i], 2)->nonce), 0);
		assert_true(atomic_load(&regions[i]->cut));
		region_detach(regions[i]);
	}
	assert_int_equal(close(device), 0);
	assert_int_equal(close(bar), 0);
}

/* ---- found without a name ---- */

static void test_devices_for_other_uses_are_passed_by(void **state)
{
	int ours = 0;

	(void)state;
	assert_not_found(-ENODEV, "set VICINAL_REGION");
	assert_int_equal(close(add_ivshmem("0000:00:02.0")), 0);
	assert_not_found(-ENODATA, "0000:00:02.0");
	ours = add_ivshmem("0000:00:10.0");
	put_region(ours, 0, REGION_VERSION);
	assert_found("pci:0000:00:10.0");
	/* The first device by address is found, whatever the order of the directory. */
	int another = add_ivshmem("0000:00:05.0");
	put_region(another, 0, REGION_VERSION);
	assert_found("pci:0000:00:05.0");
	assert_int_equal(ftruncate(another, 64), 0);
	assert_found("pci:0000:00:10.0");
	write_text(in_root("/sys/bus/pci/devices/0000:00:10.0/device"), "0x1000\n");
	assert_not_found(-ENODATA, "0000:00:02.0");
	assert_int_equal(close(ours), 0);
	assert_int_equal(close(another), 0);
}

static void test_one_that_cannot_be_used_is_reported_if_there_is_no_other(void **state)
{
	int newer = add_ivshmem("0000:00:02.0");

	(void)state;
	put_region(newer, 0, REGION_VERSION + 1);
	assert_not_found(-EPROTONOSUPPORT, "version 3");
	forbidden = "/sys/bus/pci/devices/0000:00:03.0/resource2";
	assert_int_equal(close(add_ivshmem("0000:00:03.0")), 0);
	assert_not_found(-EPROTONOSUPPORT, "version 3");
	int good = add_ivshmem("0000:00:04.0");
	put_region(good, 0, REGION_VERSION);
	assert_found("pci:0000:00:04.0");
	assert_int_equal(close(good), 0);
	assert_int_equal(close(newer), 0);
}

static void test_a_bar_comes_before_dax_and_dax_before_files(void **state)
{
	int file = make_file(in_root("/run/vicinal/region"), HUGE);
	int tenth = add_dax("dax10.0", "4194304\n", "2097152\n");
	int second = add_dax("dax2.0", "4194304\n", "2097152\n");
	int bar = add_ivshmem("0000:00:02.0");

	(void)state;
	put_region(file, 0, REGION_VERSION);
	assert_found("file:/run/vicinal/region");
	put_region(tenth, 0, REGION_VERSION);
	assert_found("dax:/dev/dax10.0");
	put_region(second, 0, REGION_VERSION);
	assert_found("dax:/dev/dax2.0");
	/* A device that this user may not open is passed by. */
	forbidden = "/dev/dax2.0";
	assert_found("dax:/dev/dax10.0");
	put_region(bar, 0, REGION_VERSION);
	assert_found("pci:0000:00:02.0");
	assert_int_equal(close(file), 0);
	assert_int_equal(close(tenth), 0);
	assert_int_equal(close(second), 0);
	assert_int_equal(close(bar), 0);
}

/* Whatever a device contains, it is passed by, or a region that lies in it is found. */
static void test_hostile_devices_do_no_harm(void **state)
{
	int fd = add_dax("dax0.0", "4194304\n", "2097152\n");
	int bar = add_ivshmem("0000:00:02.0");
	uint64_t seed = 815;
	uint32_t words[REGION_PAGE / sizeof(uint32_t)];

	(void)state;
	for (int round = 0; round < 2000; round++) {
		char name[PATH_MAX];
		struct region_error error;
		const uint64_t magic = REGION_MAGIC;
		int hostile = round % 2 == 0 ? fd : bar;
		put_region(hostile, 0, REGION_VERSION);
		assert_int_equal(pread(hostile, words, sizeof(words), 0), (ssize_t)sizeof(words));
		for (int i = 0; i < 3; i++)
			words[random_below(&seed, 36)] = (uint32_t)next_random(&seed);
		if (round % 3 != 0)
			memcpy(words, &magic, sizeof(magic));
		assert_int_equal(pwrite(hostile, words, sizeof(words), 0), (ssize_t)sizeof(words));
		struct region *region = NULL;
		if (region_discover(name, &error) != 0)
			continue;
		assert_int_equal(region_attach(name, &region, &error), 0);
		assert_true(region->sections_offset + region->members * region->section_bytes <=
			    region->bytes);
		region_detach(region);
	}
	assert_int_equal(close(fd), 0);
	assert_int_equal(close(bar), 0);
}

#define ON_A_MACHINE(name) cmocka_unit_test_setup_teardown(name, machine_open, machine_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_A_MACHINE(test_a_device_with_a_region_is_attached),
		ON_A_MACHINE(test_what_is_no_dax_device_is_refused),
		ON_A_MACHINE(test_sizes_that_cannot_be_are_refused),
		ON_A_MACHINE(test_memory_that_holds_something_else_stays_as_it_is),
		ON_A_MACHINE(test_a_region_in_a_module_begins_where_its_info_block_says),
		ON_A_MACHINE(test_info_blocks_that_cannot_be_are_not_followed),
		ON_A_MACHINE(test_members_of_both_kinds_meet),
		ON_A_MACHINE(test_a_device_can_be_taken_away),
		ON_A_MACHINE(test_devices_for_other_uses_are_passed_by),
		ON_A_MACHINE(test_one_that_cannot_be_used_is_reported_if_there_is_no_other),
		ON_A_MACHINE(test_a_bar_comes_before_dax_and_dax_before_files),
		ON_A_MACHINE(test_hostile_devices_do_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
