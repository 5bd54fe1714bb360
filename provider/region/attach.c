/* SPDX-License-Identifier: BSD-3-Clause */
/* attach.c - opens and maps the region that a name stands for. */
#include "region/broker.h"
#include "region/dax.h"
#include "region/doorbell.h"
#include "region/fork.h"
#include "region/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_error(const char *path, enum region_kind kind, int code, struct region_error *error)
{
	if (code == ENOENT && kind == REGION_FILE)
		return region_fail(
			error, -code,
			"region %s does not exist: create it with 'vicinal region create %s', or let "
			"'vicinal run' do so",
			path, path);
	if (code == ENOENT && kind == REGION_DAX)
		return region_fail(error, -code,
				   "there is no DAX device %s: check that the machine has the memory, and "
				   "that the modules nd_pmem, dax_pmem and device_dax are loaded",
				   path);
	if (code == ENOENT)
		return region_fail(
			error, -code,
			"there is no PCI device with %s: look for an ivshmem device (1af4:1110) in lspci",
			path);
	if (code == EACCES && kind != REGION_FILE)
		return region_fail(error, -code,
				   "this user may not open %s: give it to the user's group with a udev rule "
				   "(see docs/tutorials/own-machines.md)",
				   path);
	if (code == EACCES)
		return region_fail(
			error, -code,
			"this user may not open region %s: run as its owner, or create your own region",
			path);
	if (kind != REGION_FILE)
		return region_fail(
			error, -code,
			"%s cannot be opened (%s): see the kernel's messages about the device (dmesg)", path,
			strerror(code));
	return region_fail(error, -code,
			   "region %s cannot be opened (%s): create it again with 'vicinal region create'",
			   path, strerror(code));
}

/* Check what can be wrong only with a file: its type, owner and mode. */
static int check_file(const struct stat *status, const char *path, struct region_error *error)
{
	if (!S_ISREG(status->st_mode))
		return region_fail(error, -EINVAL,
				   "region %s is not a regular file: name a file on tmpfs or hugetlbfs",
				   path);
	/* The owner of a file can truncate it while it is mapped. */
	if (status->st_uid != geteuid())
		return region_fail(error, -EPERM,
				   "region %s belongs to user %u and this is user %u: create your own region",
				   path, (unsigned)status->st_uid, (unsigned)geteuid());
	/* The group bits of the mode also show what access control lists allow. */
	if ((status->st_mode & (S_IRWXG | S_IRWXO)) != 0)
		return region_fail(error, -EPERM,
				   "region %s is open to other users (mode %04o), who can read and forge all "
				   "messages: chmod 600 it, or create it again",
				   path, (unsigned)status->st_mode & 07777U);
	return 0;
}

/* Check for missing backing, which would fault later. Sparse heaps need none yet. */
static int check_backing(const struct region *region, const struct stat *status, struct region_error *error)
{
	uint64_t backed = (uint64_t)status->st_blocks * 512;
	uint64_t needed = (uint64_t)status->st_size;

	if (region->sparse_heaps)
		needed = region_size(region->members, section_arena_end(region));
	if (backed < needed)
		return region_fail(
			error, -ENOSPC,
			"region %s needs %llu bytes, but only %llu are backed by memory: create it "
			"with 'vicinal region create', which reserves them",
			region->path, (unsigned long long)needed, (unsigned long long)backed);
	return 0;
}

/* How long a broker may take to answer a process that starts. */
#define BROKER_MILLISECONDS 10000U

static int split_name(const char *name, struct region *region, struct region_error *error)
{
	int written = 0;

	if (strncmp(name, "file:", 5) == 0 && name[5] == '/') {
		region->kind = REGION_FILE;
		written = snprintf(region->path, sizeof(region->path), "%s", name + 5);
	} else if (strncmp(name, "socket:", 7) == 0 && name[7] == '/') {
		region->kind = REGION_FILE; /* members share a kernel, which locks memory as any file */
		region->brokered = true;
		written = snprintf(region->path, sizeof(region->path), "%s", name + 7);
	} else if (strncmp(name, "pci:", 4) == 0 && name[4] != '\0' && strchr(name, '/') == NULL) {
		region->kind = REGION_PCI;
		written = snprintf(region->path, sizeof(region->path), PCI_DEVICES "/%s/resource2", name + 4);
	} else if (strncmp(name, "dax:", 4) == 0 && name[4] == '/') {
		region->kind = REGION_DAX;
		written = snprintf(region->path, sizeof(region->path), "%s", name + 4);
	} else {
		return region_fail(error, -EINVAL,
				   "VICINAL_REGION=%s is not understood: write file:/PATH, socket:/PATH, "
				   "pci:ADDRESS (such as pci:0000:00:04.0) or dax:/PATH (such as "
				   "dax:/dev/dax0.0)",
				   name);
	}
	if (written < 0 || (size_t)written >= sizeof(region->path))
		return region_fail(error, -ENAMETOOLONG,
				   "VICINAL_REGION is longer than a path can be: shorten it");
	(void)snprintf(region->name, sizeof(region->name), "%s", name);
	return 0;
}

/* Find the offset and length of the region in the opened file or device. */
static int find_extent(struct region *region, const struct stat *status, struct region_error *error)
{
	if (region->kind == REGION_DAX)
		return dax_length(status, region->path, &region->bytes, error);
	region->bytes = (size_t)status->st_size;
	if (region->kind == REGION_FILE && !region->brokered) {
		int result = check_file(status, region->path, error);
		if (result != 0)
			return result;
		region->offset = dax_data_offset(region->fd, region->bytes);
		region->bytes -= region->offset;
	}
	return 0;
}

static int open_region(struct region *region, uint32_t milliseconds, struct stat *status,
		       struct region_error *error)
{
	if (region->brokered) {
		int result = broker_fetch(region->path, BROKER_JOIN, milliseconds, &region->fd, error);
		return result != 0 ? result : broker_check(region->fd, region->path, status, error);
	}
	/*
	 * O_NOFOLLOW: another process must not replace the name by a link to another file of this
	 * user.
	 */
	int link = region->kind == REGION_FILE ? O_NOFOLLOW : 0;
	region->fd = open(region->path, O_RDWR | O_CLOEXEC | link);
	if (region->fd < 0)
		return open_error(region->path, region->kind, errno, error);
	if (fstat(region->fd, status) != 0)
		return region_fail(error, -errno, "region %s: %s: create it again", region->path,
				   strerror(errno));
	return 0;
}

static int map_region(struct region *region, uint32_t milliseconds, struct region_error *error)
{
	struct stat status = {0};
	int result = open_region(region, milliseconds, &status, error);
	if (result == 0)
		result = find_extent(region, &status, error);
	if (result != 0)
		return result;
	if (region->bytes < sizeof(struct region_header))
		return region_fail(error, -ENODATA,
				   "region %s has %zu bytes, too few for a region: create it with "
				   "'vicinal region create'",
				   region->path, region->bytes);
	/*
	 * Nothing is written before the header shows that this is a region. Without MAP_NORESERVE,
	 * hugetlbfs would set pages aside for sparse heaps too.
	 */
	void *base = mmap(NULL, region->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, region->fd,
			  (off_t)region->offset);
	if (base == MAP_FAILED)
		return region_fail(error, -errno,
				   "region %s cannot be mapped (%s): kernel lockdown (Secure Boot) forbids "
				   "mapping a BAR, and a file needs free address space",
				   region->path, strerror(errno));
	region->base = base;
	/* Another process may truncate a file, and some devices fault when they are unplugged. */
	if (!guard_watch(region))
		return region_fail(error, -ENOMEM, "no memory is left to attach a region: free some");

	struct region_error detail;
	result = region_check_header((const struct region_header *)base, region->bytes, region, &detail);
	if (result != 0)
		return region_fail(error, result, "region %.*s cannot be used: %.400s", 1024, region->path,
				   detail.text);
	return region->kind == REGION_FILE ? check_backing(region, &status, error) : 0;
}

/* Make a region that only this process maps. Pages are backed when they are first used. */
static int make_private(struct region *region, struct region_error *error)
{
	const size_t bytes = region_size(REGION_PRIVATE_MEMBERS, REGION_PRIVATE_SECTION);
	uint64_t id[2];

	region->kind = REGION_FILE; /* its slots are locked as in any other region file */
	(void)snprintf(region->name, sizeof(region->name), "%s", REGION_PRIVATE);
	(void)snprintf(region->path, sizeof(region->path), "%s", REGION_PRIVATE);
	region->fd = memfd_create("vicinal", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (region->fd < 0 || ftruncate(region->fd, (off_t)bytes) != 0 ||
	    fcntl(region->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0 ||
	    getrandom(id, sizeof(id), 0) != (ssize_t)sizeof(id))
		return region_fail(error, -errno,
				   "there is no region, and none can be made for this process (%s): create "
				   "one with 'vicinal region create'",
				   strerror(errno));
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd, 0);
	if (base == MAP_FAILED)
		return region_fail(error, -errno, "no memory is left for an endpoint: free some");
	region->base = base;
	region->bytes = bytes;
	(void)region_format(base, bytes, REGION_PRIVATE_MEMBERS, REGION_PRIVATE_SECTION, id);
	return region_check_header((const struct region_header *)base, bytes, region, error);
}

int region_attach(const char *name, struct region **region, struct region_error *error)
{
	return region_attach_within(name, BROKER_MILLISECONDS, region, error);
}

int region_attach_within(const char *name, uint32_t milliseconds, struct region **region,
			 struct region_error *error)
{
	struct region *attached = calloc(1, sizeof(*attached));

	if (attached == NULL)
		return region_fail(error, -ENOMEM, "no memory is left to attach a region: free some");
	fork_watch();
	attached->fd = -1;
	int result = 0;
	if (strcmp(name, REGION_PRIVATE) == 0) {
		result = make_private(attached, error);
	} else {
		result = split_name(name, attached, error);
		if (result == 0)
			result = map_region(attached, milliseconds, error);
	}
	if (result != 0) {
		region_detach(attached);
		return result;
	}
	*region = attached;
	return 0;
}

void region_hold(struct region *region)
{
	atomic_fetch_add_explicit(&region->holds, 1, memory_order_relaxed);
}

void region_detach(struct region *region)
{
	/* Acquire: accesses by the other holders come before the unmapping. */
	if (region == NULL || atomic_fetch_sub_explicit(&region->holds, 1, memory_order_acq_rel) != 0)
		return;
	doorbell_detach(region);
	guard_forget(region);
	if (region->base != NULL)
		(void)munmap(region->base, region->bytes);
	if (region->fd >= 0)
		(void)close(region->fd);
	free(region);
}

void region_after_fork(struct region *region)
{
	/*
	 * If the parent had lost the region, the inherited mapping is already private and writable.
	 */
	if (region->lost || region->left)
		return;
	region->lost = true;
	doorbell_after_fork(region);
	if (region->kind == REGION_FILE)
		(void)mmap(region->base, region->bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED, region->fd, (off_t)region->offset);
}
