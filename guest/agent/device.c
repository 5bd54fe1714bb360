/* SPDX-License-Identifier: BSD-3-Clause */
/* device.c - access to an ivshmem-doorbell device by VFIO: see device.h. */
#include "guest/agent/device.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define PCI_DEVICES "/sys/bus/pci/devices"
#define PAGE 4096U
/* The address ranges of a device, including its ROM: the first lines of `resource` in sysfs. */
#define BARS 7U
/* The flag in `resource` for memory ranges, as opposed to I/O ports. */
#define IS_MEMORY 0x200U
/* Offset in BAR 0 of an ivshmem device of its own number. */
#define POSITION 8U
/* The number if the device has no server. */
#define NO_POSITION UINT32_MAX

void give_up(const char *what, const char *subject)
{
	(void)fprintf(stderr, "vicinal-doorbell-agent: error: %s %s%s%s\n", what, subject,
		      errno != 0 ? ": " : "", errno != 0 ? strerror(errno) : "");
	exit(1);
}

static int open_or_fail(const char *path, int flags)
{
	int file = open(path, flags | O_CLOEXEC);

	if (file < 0)
		give_up("cannot open", path);
	return file;
}

/* Find the device's IOMMU group, whose number is the name of a file in /dev/vfio. */
static void find_group(const char *address, char path[PATH_MAX])
{
	char link[PATH_MAX];
	char target[PATH_MAX] = "";

	(void)snprintf(link, sizeof(link), PCI_DEVICES "/%s/iommu_group", address);
	if (readlink(link, target, sizeof(target) - 1) < 0)
		give_up("the guest has no IOMMU for the device (intel_iommu=on?), there is no", link);
	(void)snprintf(path, PATH_MAX, "/dev/vfio/%.64s", basename(target));
}

static void open_vfio(struct device *device, const char *address)
{
	struct vfio_group_status status = {.argsz = sizeof(status)};
	char path[PATH_MAX];

	find_group(address, path);
	device->container = open_or_fail("/dev/vfio/vfio", O_RDWR);
	device->group = open_or_fail(path, O_RDWR);
	if (ioctl(device->group, VFIO_GROUP_GET_STATUS, &status) != 0 ||
	    (status.flags & VFIO_GROUP_FLAGS_VIABLE) == 0)
		give_up("another device is in the IOMMU group of", address);
	if (ioctl(device->group, VFIO_GROUP_SET_CONTAINER, &device->container) != 0 ||
	    ioctl(device->container, VFIO_SET_IOMMU, VFIO_TYPE1_IOMMU) != 0)
		give_up("vfio does not take the IOMMU group of", address);
	device->file = ioctl(device->group, VFIO_GROUP_GET_DEVICE_FD, address);
	if (device->file < 0)
		give_up("vfio does not have the device", address);
}

/* An interrupt is a write to memory, which a device may do only as bus master. */
static void let_it_interrupt(const struct device *device, const char *address)
{
	struct vfio_region_info region = {.argsz = sizeof(region), .index = VFIO_PCI_CONFIG_REGION_INDEX};
	uint16_t command = 0;

	if (ioctl(device->file, VFIO_DEVICE_GET_REGION_INFO, &region) != 0)
		give_up("vfio does not show the configuration of", address);
	off_t offset = (off_t)region.offset + PCI_COMMAND;
	if (pread(device->file, &command, sizeof(command), offset) != (ssize_t)sizeof(command))
		give_up("cannot read the configuration of", address);
	command |= PCI_COMMAND_MASTER;
	if (pwrite(device->file, &command, sizeof(command), offset) != (ssize_t)sizeof(command))
		give_up("cannot write the configuration of", address);
}

static int set_interrupts(const struct device *device, uint32_t first, uint32_t count,
			  const int32_t *descriptors)
{
	union {
		struct vfio_irq_set set;
		char room[sizeof(struct vfio_irq_set) + DEVICE_VECTORS_MAX * sizeof(int32_t)];
	} request = {.set = {.flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER,
			     .index = VFIO_PCI_MSIX_IRQ_INDEX,
			     .start = first,
			     .count = count}};

	request.set.argsz = (uint32_t)(sizeof(request.set) + count * sizeof(*descriptors));
	memcpy(request.set.data, descriptors, count * sizeof(*descriptors));
	return ioctl(device->file, VFIO_DEVICE_SET_IRQS, &request.set) == 0 ? 0 : -errno;
}

/*
 * Kernels before 6.5 do not permit more interrupts later than at first, so reserve all of them,
 * connected to nothing.
 */
static void reserve_interrupts(struct device *device, const char *address)
{
	struct vfio_irq_info info = {.argsz = sizeof(info), .index = VFIO_PCI_MSIX_IRQ_INDEX};
	int32_t none[DEVICE_VECTORS_MAX];

	if (ioctl(device->file, VFIO_DEVICE_GET_IRQ_INFO, &info) != 0)
		give_up("vfio does not show the interrupts of", address);
	errno = 0;
	if (info.count == 0)
		give_up("there are no interrupts (is it ivshmem-plain?) at", address);
	device->vectors = info.count < DEVICE_VECTORS_MAX ? info.count : DEVICE_VECTORS_MAX;
	memset(none, 0xff, sizeof(none)); /* -1 */
	int result = set_interrupts(device, 0, device->vectors, none);
	errno = -result;
	if (result != 0)
		give_up("the kernel refuses the interrupts of", address);
}

/* Addresses from first to last, inclusive. */
struct range {
	uint64_t first;
	uint64_t last;
};

/* Read the memory ranges of the device: its BARs and its ROM. Returns how many. */
static uint32_t read_ranges(const char *address, struct range ranges[BARS])
{
	char path[PATH_MAX];
	char line[64] = "";
	uint32_t count = 0;

	(void)snprintf(path, sizeof(path), PCI_DEVICES "/%.64s/resource", address);
	FILE *file = fopen(path, "re");
	if (file == NULL)
		give_up("cannot read", path);
	for (uint32_t bar = 0; bar < BARS && fgets(line, sizeof(line), file) != NULL; bar++) {
		char *rest = NULL;
		ranges[count].first = strtoull(line, &rest, 16);
		ranges[count].last = strtoull(rest, &rest, 16);
		count += (strtoull(rest, NULL, 16) & IS_MEMORY) != 0;
	}
	(void)fclose(file);
	return count;
}

/*
 * A process that maps a page can access all of it, so the page must not contain registers of
 * another device.
 */
static void require_alone(const char *address, uint64_t page)
{
	DIR *devices = opendir(PCI_DEVICES);
	uint32_t found = 0;

	if (devices == NULL)
		give_up("cannot read", PCI_DEVICES);
	for (const struct dirent *entry = readdir(devices); entry != NULL; entry = readdir(devices)) {
		struct range ranges[BARS];
		if (entry->d_name[0] == '.')
			continue;
		uint32_t count = read_ranges(entry->d_name, ranges);
		for (uint32_t i = 0; i < count; i++)
			found += ranges[i].first / PAGE <= page && page <= ranges[i].last / PAGE;
	}
	(void)closedir(devices);
	errno = 0;
	if (found != 1)
		give_up("registers of another device lie in one page with those of", address);
}

/* The offset of BAR 0 in its page: a small BAR need not begin at a page. */
static uint32_t find_registers(const char *address)
{
	struct range ranges[BARS];

	errno = 0;
	if (read_ranges(address, ranges) == 0)
		give_up("there are no registers at", address);
	require_alone(address, ranges[0].first / PAGE);
	return (uint32_t)(ranges[0].first % PAGE);
}

/*
 * Not by VFIO: the kernel lets no process map by sysfs what VFIO has mapped, but members of the
 * region must map these registers and the memory beside them.
 */
static void open_registers(struct device *device, const char *address)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), PCI_DEVICES "/%s/resource0", address);
	device->registers = open_or_fail(path, O_RDWR);
	device->offset = find_registers(address);
	void *page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, device->registers, 0);
	if (page == MAP_FAILED)
		give_up("cannot map", path);
	device->guest = *(volatile uint32_t *)(void *)((unsigned char *)page + device->offset + POSITION);
	(void)munmap(page, PAGE);
	errno = 0;
	if (device->guest == NO_POSITION)
		give_up("no server gave a number to", address);
}

struct device device_open(const char *address)
{
	struct device device;

	open_vfio(&device, address);
	let_it_interrupt(&device, address);
	reserve_interrupts(&device, address);
	open_registers(&device, address);
	return device;
}

int device_deliver(const struct device *device, uint32_t vector, int descriptor)
{
	return set_interrupts(device, vector, 1, &(int32_t){descriptor});
}
