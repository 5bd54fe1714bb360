/* SPDX-License-Identifier: BSD-3-Clause */
/* dax.c - see dax.h. */
#include "region/dax.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/*
 * The part of the kernel's info block that says where the data begins. Integers are little endian.
 */
struct info_block {
	char signature[16];
	unsigned char identities[32];
	uint32_t flags;
	uint16_t version[2];
	uint64_t data_offset;
	uint64_t pages;
	uint32_t mode;
	uint32_t start_pad; /* bytes before the origin of data_offset */
};
static_assert(offsetof(struct info_block, data_offset) == 56, "the kernel's layout");
static_assert(offsetof(struct info_block, start_pad) == 76, "the kernel's layout");

/* Read an integer attribute of the device. Returns 0 if there is none. */
static uint64_t read_number(dev_t device, const char *attribute)
{
	char path[128];
	char text[32] = "";

	(void)snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/%s", major(device), minor(device), attribute);
	FILE *file = fopen(path, "re");
	if (file == NULL)
		return 0;
	if (fgets(text, sizeof(text), file) == NULL)
		text[0] = '\0';
	(void)fclose(file);
	errno = 0;
	uint64_t number = strtoull(text, NULL, 0);
	return errno == 0 && text[0] >= '0' && text[0] <= '9' ? number : 0;
}

static bool is_dax(dev_t device)
{
	char path[128];
	char target[PATH_MAX] = "";

	(void)snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/subsystem", major(device), minor(device));
	if (readlink(path, target, sizeof(target) - 1) < 0)
		return false;
	const char *name = strrchr(target, '/');
	return name != NULL && strcmp(name, "/dax") == 0;
}

int dax_length(const struct stat *status, const char *path, size_t *bytes, struct region_error *error)
{
	if (!S_ISCHR(status->st_mode) || !is_dax(status->st_rdev))
		return region_fail(
			error, -EINVAL,
			"%s is not a DAX device: name one of /dev/dax*, or a file with file:", path);
	uint64_t length = read_number(status->st_rdev, "size");
	uint64_t align = read_number(status->st_rdev, "align");
	if (length == 0 || length > PTRDIFF_MAX)
		return region_fail(error, -EINVAL,
				   "the DAX device %s has no memory (/sys/dev/char/%u:%u/size): add some "
				   "with ndctl or daxctl",
				   path, major(status->st_rdev), minor(status->st_rdev));
	/*
	 * The kernel maps only multiples of the alignment, and refuses a device whose size is not a
	 * multiple.
	 */
	if (align != 0 && length % align != 0)
		return region_fail(error, -EINVAL,
				   "the DAX device %s has %llu bytes, which is no multiple of its alignment "
				   "of %llu: create it again with ndctl or daxctl",
				   path, (unsigned long long)length, (unsigned long long)align);
	*bytes = (size_t)length;
	return 0;
}

size_t dax_data_offset(int fd, size_t bytes)
{
	uint64_t magic = 0;
	struct info_block info;

	if (pread(fd, &magic, sizeof(magic), 0) != (ssize_t)sizeof(magic) || magic == REGION_MAGIC)
		return 0;
	if (pread(fd, &info, sizeof(info), DAX_INFO_OFFSET) != (ssize_t)sizeof(info) ||
	    memcmp(info.signature, DAX_INFO_SIGNATURE, sizeof(info.signature)) != 0)
		return 0;
	uint64_t pad = info.version[1] >= 1 ? info.start_pad : 0;
	if (info.data_offset < DAX_DATA_MIN || info.data_offset >= bytes || pad >= bytes - info.data_offset)
		return 0;
	uint64_t offset = info.data_offset + pad;
	return offset % REGION_PAGE == 0 ? (size_t)offset : 0;
}
