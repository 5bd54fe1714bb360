/* SPDX-License-Identifier: BSD-3-Clause */
/* node_vfs.c - SR-IOV VFs of a job's nodes: see node_vfs.h. */
#include "node_vfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "command.h"

#define DEVICES "/sys/bus/pci/devices"
#define ADDRESS_MAX 32U
#define PATH_OF_NETWORK_MAX 64U
#define LINK_NAME_MAX 16U
/*
 * The interface may still be in nodes that have just ended: the kernel returns it when it removes
 * their network.
 */
#define APPEAR_POLLS 250
#define POLL_NANOSECONDS (20L * 1000 * 1000)

static int read_lines(FILE *file, struct node_vfs *found)
{
	char line[NODE_VF_LINE_MAX];

	while (fgets(line, sizeof(line), file) != NULL) {
		size_t length = strcspn(line, "\n");

		if (line[length] == '\0' || found->count == NODE_VFS_MAX)
			return -1;
		line[length] = '\0';
		memcpy(found->lines[found->count++], line, length + 1);
	}
	return found->count > 0 ? 0 : -1;
}

enum node_vfs_state node_vfs_read(const char *directory, uint32_t job, struct node_vfs *found)
{
	char path[PATH_MAX];
	struct stat status;
	int result = -1;
	int opened = -1;

	*found = (struct node_vfs){0};
	if (snprintf(path, sizeof(path), "%s/vfs-%" PRIu32 ".nodes", directory, job) < PATH_MAX)
		opened = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (opened < 0)
		return errno == ENOENT ? NODE_VFS_NONE : NODE_VFS_WRONG;
	bool good = fstat(opened, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
		    (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
	FILE *file = good ? fdopen(opened, "r") : NULL;

	if (file == NULL) {
		(void)close(opened);
		return NODE_VFS_WRONG;
	}
	result = read_lines(file, found);
	(void)fclose(file);
	return result == 0 ? NODE_VFS_GIVEN : NODE_VFS_WRONG;
}

/*
 * Find the interface of a VF in this network, under any name. Returns 0, or -1 if there is
 * none.
 */
static int find_interface(const char *address, char name[IF_NAMESIZE])
{
	char path[PATH_MAX];
	const struct dirent *entry = NULL;
	int result = -1;

	(void)snprintf(path, sizeof(path), "%s/%s/net", DEVICES, address);
	DIR *listed = opendir(path);

	if (listed == NULL)
		return -1;
	while (result != 0 && (entry = readdir(listed)) != NULL) {
		if (entry->d_name[0] == '.' || strlen(entry->d_name) >= IF_NAMESIZE)
			continue;
		(void)snprintf(name, IF_NAMESIZE, "%.*s", (int)IF_NAMESIZE - 1, entry->d_name);
		result = 0;
	}
	(void)closedir(listed);
	return result;
}

static int wait_for_interface(const char *address, char name[IF_NAMESIZE])
{
	static const struct timespec pause = {.tv_nsec = POLL_NANOSECONDS};

	for (int polls = 0; polls < APPEAR_POLLS; polls++) {
		if (find_interface(address, name) == 0)
			return 0;
		(void)nanosleep(&pause, NULL);
	}
	return -1;
}

int node_vfs_grant(struct node_vfs *vfs, uint32_t number, int network, char *said, size_t length)
{
	char address[ADDRESS_MAX];
	char kind[LINK_NAME_MAX];
	char interface[IF_NAMESIZE];
	char network_file[PATH_OF_NETWORK_MAX];
	char name[LINK_NAME_MAX];
	const char *const arguments[] = {"/sbin/ip", "link",       "set",  "dev", interface,
					 "netns",    network_file, "name", name,  NULL};

	if (number >= vfs->count || vfs->granted[number] || vfs->for_vms ||
	    sscanf(vfs->lines[number], "%31s %15s", address, kind) != 2 || strcmp(kind, "ethernet") != 0) {
		(void)snprintf(said, length,
			       "vicinal: the nodes request an SR-IOV VF that the job does not have");
		return -1;
	}
	if (wait_for_interface(address, interface) != 0) {
		(void)snprintf(said, length,
			       "vicinal: the interface of the SR-IOV VF %s is in another network: "
			       "start the job again",
			       address);
		return -1;
	}
	/* This process waits for the command, so the descriptor stays open that long. */
	(void)snprintf(network_file, sizeof(network_file), "/proc/%d/fd/%d", (int)getpid(), network);
	(void)snprintf(name, sizeof(name), "vf%" PRIu32, number);
	vfs->granted[number] = true;
	return command_run(arguments, said, length);
}

int node_vfs_grant_to_vms(struct node_vfs *vfs, const struct settings *settings, uint32_t job, uid_t user,
			  char *said, size_t length)
{
	char number[LINK_NAME_MAX];
	char owner[LINK_NAME_MAX];
	const char *const arguments[] = {
		settings->command,   "slurm", "grant", number, "--user", owner, "--directory",
		settings->directory, NULL};

	for (uint32_t i = 0; i < vfs->count; i++)
		if (vfs->granted[i] || vfs->for_vms)
			return -1;
	vfs->for_vms = true;
	(void)snprintf(number, sizeof(number), "%" PRIu32, job);
	(void)snprintf(owner, sizeof(owner), "%" PRIu32, (uint32_t)user);
	return command_run(arguments, said, length);
}
