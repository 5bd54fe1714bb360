/* SPDX-License-Identifier: BSD-3-Clause */
/* discover.c - finds a region if the user named none. */
#include "region/region.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DAX_DEVICES "/sys/bus/dax/devices"
#define IVSHMEM_VENDOR 0x1af4U
#define IVSHMEM_DEVICE 0x1110U

/* No machine has this many devices with shared memory, or names this long. */
#define DEVICES_MAX 64U
#define DEVICE_NAME 32U

static const char *const well_known_files[] = {"/run/vicinal/region", "/dev/shm/vicinal-region"};

/* The state of a search that tries one candidate after the other. */
struct search {
	char *name;        /* of the candidate that was tried last */
	int result;        /* 0: found; -ENODEV: not yet; else the first error that the user must fix */
	bool empty_device; /* an ivshmem device exists that holds no region */
	struct region_error *error;
	struct region_error hint; /* why the first possible candidate is not a region */
};

static unsigned read_hexadecimal(const char *device, const char *attribute)
{
	char path[PATH_MAX];
	char text[16] = "";

	(void)snprintf(path, sizeof(path), PCI_DEVICES "/%s/%s", device, attribute);
	FILE *file = fopen(path, "re");
	if (file == NULL)
		return 0;
	if (fgets(text, sizeof(text), file) == NULL)
		text[0] = '\0';
	(void)fclose(file);
	return (unsigned)strtoul(text, NULL, 16);
}

static bool is_ivshmem(const char *device)
{
	return read_hexadecimal(device, "vendor") == IVSHMEM_VENDOR &&
	       read_hexadecimal(device, "device") == IVSHMEM_DEVICE;
}

static bool is_any(const char *device)
{
	return device[0] != '.';
}

static int compare_names(const void *one, const void *other)
{
	return strverscmp(one, other);
}

/* Sorted, because machines with the same devices must choose the same device. */
static size_t list_devices(const char *directory, bool (*wanted)(const char *device),
			   char names[DEVICES_MAX][DEVICE_NAME])
{
	DIR *devices = opendir(directory);
	size_t count = 0;

	if (devices == NULL)
		return 0;
	for (struct dirent *entry = readdir(devices); entry != NULL && count < DEVICES_MAX;
	     entry = readdir(devices))
		if (strlen(entry->d_name) < DEVICE_NAME && wanted(entry->d_name))
			(void)snprintf(names[count++], DEVICE_NAME, "%.31s", entry->d_name);
	(void)closedir(devices);
	qsort(names, count, DEVICE_NAME, compare_names);
	return count;
}

/* Try to attach the region that search->name names. */
static int attempt(const struct search *search, struct region_error *error)
{
	struct region *region = NULL;
	int result = region_attach(search->name, &region, error);

	if (result == 0)
		region_detach(region);
	return result;
}

static void remember(struct search *search, const struct region_error *error)
{
	if (search->hint.text[0] == '\0')
		search->hint = *error;
}

/*
 * A device that holds something else is skipped. An unusable region is reported if no usable region
 * is found.
 */
static void try_ivshmem(struct search *search, const char *device)
{
	struct region_error error;

	(void)snprintf(search->name, PATH_MAX, "pci:%s", device);
	int result = attempt(search, &error);
	search->empty_device = search->empty_device || result == -ENODATA;
	if (result == -ENODATA)
		remember(search, &error);
	else if (result != 0 && search->result == -ENODEV)
		*search->error = error;
	if (result == 0 || (result != -ENODATA && search->result == -ENODEV))
		search->result = result;
}

/* Skip a memory module that holds no region without an error: its owner may use it for anything. */
static void try_dax(struct search *search, const char *device)
{
	struct region_error error;

	(void)snprintf(search->name, PATH_MAX, "dax:/dev/%s", device);
	int result = attempt(search, &error);
	if (result == 0)
		search->result = 0;
	else
		remember(search, &error);
}

static void try_file(struct search *search, const char *file)
{
	struct region_error error;

	if (access(file, F_OK) != 0)
		return;
	(void)snprintf(search->name, PATH_MAX, "file:%s", file);
	int result = attempt(search, &error);
	if (result != 0 && search->result == -ENODEV)
		*search->error = error;
	if (result == 0 || search->result == -ENODEV)
		search->result = result;
}

static void try_devices(struct search *search, const char *directory, bool (*wanted)(const char *device),
			void (*look)(struct search *search, const char *device))
{
	char names[DEVICES_MAX][DEVICE_NAME];
	size_t count = search->result == 0 ? 0 : list_devices(directory, wanted, names);

	for (size_t i = 0; i < count && search->result != 0; i++)
		look(search, names[i]);
}

int region_discover(char name[PATH_MAX], struct region_error *error)
{
	struct search search = {.name = name, .result = -ENODEV, .error = error};

	try_devices(&search, PCI_DEVICES, is_ivshmem, try_ivshmem);
	try_devices(&search, DAX_DEVICES, is_any, try_dax);
	for (size_t i = 0; i < sizeof(well_known_files) / sizeof(well_known_files[0]); i++)
		if (search.result != 0)
			try_file(&search, well_known_files[i]);
	if (search.result != -ENODEV)
		return search.result;
	if (search.hint.text[0] != '\0')
		return region_fail(error, search.empty_device ? -ENODATA : -ENODEV,
				   "no region was found: %.1300s", search.hint.text);
	return region_fail(
		error, -ENODEV,
		"no region was found: set VICINAL_REGION, or start the program with 'vicinal run'");
}
