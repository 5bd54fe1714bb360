/* SPDX-License-Identifier: BSD-3-Clause */
/* supervisor_network.c - a network across the hosts of a job: see supervisor_network.h. */
#include "supervisor_network.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define OWN_NETWORK "/proc/self/ns/net"
/* The name of the process that holds it, for `ps`. */
#define HOLDER "job-network"

union message_room {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(sizeof(int))];
};

int supervisor_network_channel(int ends[2])
{
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
}

static int tell_of(int channel, int network)
{
	char word = 'n';
	union message_room room = {.bytes = {0}};
	struct iovec text = {.iov_base = &word, .iov_len = 1};
	struct msghdr message = {.msg_iov = &text,
				 .msg_iovlen = 1,
				 .msg_control = room.bytes,
				 .msg_controllen = sizeof(room.bytes)};
	struct cmsghdr *part = CMSG_FIRSTHDR(&message);

	part->cmsg_level = SOL_SOCKET;
	part->cmsg_type = SCM_RIGHTS;
	part->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(part), &network, sizeof(int));
	return sendmsg(channel, &message, MSG_NOSIGNAL) == 1 ? 0 : -1;
}

_Noreturn static void hold(void)
{
	(void)close_range(0, ~0U, 0);
	(void)prctl(PR_SET_NAME, HOLDER);
	for (;;)
		(void)pause();
}

int supervisor_network_hold(int channel)
{
	int before = open(OWN_NETWORK, O_RDONLY | O_CLOEXEC);
	int result = -1;

	if (before >= 0 && unshare(CLONE_NEWNET) == 0) {
		int made = open(OWN_NETWORK, O_RDONLY | O_CLOEXEC);
		pid_t holder = made >= 0 ? fork() : -1;

		if (holder == 0)
			hold();
		if (holder > 0)
			result = tell_of(channel, made);
		if (made >= 0)
			(void)close(made);
		if (setns(before, CLONE_NEWNET) != 0)
			result = -1;
	}
	int reason = errno;

	if (before >= 0)
		(void)close(before);
	errno = reason;
	return result;
}

static enum supervisor_request request_of(const unsigned char *words, ssize_t length, bool has_network)
{
	if (length == 1 && words[0] == 'm' && !has_network)
		return SUPERVISOR_GRANT_TO_VMS;
	if (length == 1 && words[0] == 'n' && has_network)
		return SUPERVISOR_JOIN;
	if (length == 2 && words[0] == 'f' && has_network)
		return SUPERVISOR_GRANT;
	return SUPERVISOR_SILENT;
}

struct supervisor_asked supervisor_network_receive(int channel)
{
	unsigned char words[3] = {0};
	struct supervisor_asked asked = {.network = -1};
	union message_room room = {.bytes = {0}};
	struct iovec text = {.iov_base = words, .iov_len = sizeof(words)};
	/*
	 * Not the size that CMSG_SPACE() rounds up to, because a second file would fit there. The
	 * kernel drops all files but one.
	 */
	struct msghdr message = {.msg_iov = &text,
				 .msg_iovlen = 1,
				 .msg_control = room.bytes,
				 .msg_controllen = CMSG_LEN(sizeof(int))};
	ssize_t got = 0;

	do
		got = recvmsg(channel, &message, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	const struct cmsghdr *part = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;

	if (part != NULL && part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS &&
	    part->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(&asked.network, CMSG_DATA(part), sizeof(int));
	asked.request = request_of(words, got, asked.network >= 0);
	asked.vf = words[1];
	if (asked.network >= 0 && asked.request == SUPERVISOR_SILENT) {
		(void)close(asked.network);
		asked.network = -1;
	}
	return asked;
}

void supervisor_network_answer(int channel)
{
	(void)send(channel, "j", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Read the name of the link only, because the file itself may be on a file system of the user. */
static bool is_network(int file)
{
	static const char kind[] = "net:[";
	char path[64];
	char name[sizeof(kind)] = "";

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	return readlink(path, name, sizeof(name)) > 0 && strncmp(name, kind, sizeof(kind) - 1) == 0;
}

static bool is_same(int one, const struct stat *other)
{
	struct stat status;

	return fstat(one, &status) != 0 || (status.st_ino == other->st_ino && status.st_dev == other->st_dev);
}

bool supervisor_network_is_of(int network, int between, uid_t user)
{
	struct stat own;
	uid_t owner = (uid_t)-1;

	if (!is_network(network) || stat(OWN_NETWORK, &own) != 0 || is_same(network, &own))
		return false;
	if (between >= 0 && (fstat(between, &own) != 0 || is_same(network, &own)))
		return false;
	if (user == 0) /* root owns all networks of the host, and creates them without a user namespace */
		return true;
	int identities = ioctl(network, NS_GET_USERNS);

	if (identities < 0)
		return false;
	bool good = ioctl(identities, NS_GET_OWNER_UID, &owner) == 0 && owner == user;

	(void)close(identities);
	return good;
}
