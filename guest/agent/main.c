/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * main.c - vicinal-doorbell-agent: holds a guest's ivshmem-doorbell device, which only one process
 * can open, and grants its interrupts to the ranks in the guest.
 *
 *  vicinal-doorbell-agent ADDRESS GROUP
 *
 * ADDRESS is the device's PCI address, for example 0000:00:04.0; its driver is vfio-pci. Members of
 * GROUP may request interrupts. The agent opens the device as root, and runs as `nobody` from then
 * on. It does not take part in messages: docs/explanation/region.md.
 */
#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "guest/agent/interrupts.h"
#include "region/doorbell.h"

#define NOBODY 65534U
/* Connections that wait for accept(). */
#define BACKLOG 64

static int listen_for(const char *address, gid_t group)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int written = snprintf(name.sun_path, sizeof(name.sun_path), DOORBELL_SOCKET "%s", address);

	errno = 0;
	if (written < 0 || (size_t)written >= sizeof(name.sun_path))
		give_up("not a PCI address:", address);
	if (mkdir("/run/vicinal", 0755) != 0 && errno != EEXIST)
		give_up("cannot make", "/run/vicinal");
	if (unlink(name.sun_path) != 0 && errno != ENOENT)
		give_up("cannot remove", name.sun_path);
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	(void)umask(0117); /* only root can connect until the group is set */
	if (listener < 0 || bind(listener, (const struct sockaddr *)&name, sizeof(name)) != 0 ||
	    chown(name.sun_path, 0, group) != 0 || listen(listener, BACKLOG) != 0)
		give_up("cannot listen on", name.sun_path);
	return listener;
}

/* One descriptor for each interrupt, and some for the agent itself. */
static void allow_descriptors(void)
{
	struct rlimit limit = {.rlim_cur = DEVICE_VECTORS_MAX + 64U, .rlim_max = DEVICE_VECTORS_MAX + 64U};

	(void)setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int count, char **arguments)
{
	errno = 0;
	if (count != 3)
		give_up("say which device and which group:", "vicinal-doorbell-agent ADDRESS GROUP");
	const struct group *group = getgrnam(arguments[2]);
	if (group == NULL)
		give_up("there is no group", arguments[2]);
	allow_descriptors();
	struct device device = device_open(arguments[1]);
	int listener = listen_for(arguments[1], group->gr_gid);
	if (setgroups(0, NULL) != 0 || setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
		give_up("cannot become", "nobody");
	(void)printf("vicinal-doorbell-agent: device %s, guest %u, %u interrupts\n", arguments[1],
		     device.guest, device.vectors);
	(void)fflush(stdout);
	grant_interrupts(&device, listener);
}
