/* SPDX-License-Identifier: BSD-3-Clause */
/* broker.c - asks a broker for the memory of its region: see broker.h. */
#include "region/broker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "region/member.h"

/* The pause after a broker closed a connection, as it does when it is started again. */
#define AGAIN_NANOSECONDS 10000000L
/* A broker sends one descriptor. Room for more shows that another one came. */
#define DESCRIPTORS_MAX 4U

/* Bound the next call on a connection. False if no time is left. */
static bool bound(int connection, uint64_t deadline)
{
	uint64_t now = monotonic_now();

	if (now >= deadline)
		return false;
	uint64_t microseconds = (deadline - now) / 1000 + 1;
	struct timeval left = {.tv_sec = (time_t)(microseconds / 1000000),
			       .tv_usec = (suseconds_t)(microseconds % 1000000)};

	return setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &left, sizeof(left)) == 0 &&
	       setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &left, sizeof(left)) == 0;
}

/* What a call on a bounded connection returned. -EINTR means: call again. */
static int result_of(ssize_t returned)
{
	if (returned >= 0)
		return 0;
	if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINPROGRESS)
		return -ETIMEDOUT;
	return errno == EPIPE ? -ECONNRESET : -errno;
}

static int open_connection(const char *path, uint64_t deadline, int *connection)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int result = 0;

	(void)snprintf(name.sun_path, sizeof(name.sun_path), "%s", path);
	*connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (*connection < 0)
		return -errno;
	do
		result = bound(*connection, deadline)
				 ? result_of(
					   connect(*connection, (const struct sockaddr *)&name, sizeof(name)))
				 : -ETIMEDOUT;
	while (result == -EINTR);
	return result;
}

static int send_request(int connection, enum broker_purpose purpose, uint64_t deadline)
{
	const struct broker_request request = {
		.magic = BROKER_MAGIC, .version = BROKER_VERSION, .purpose = (uint32_t)purpose};
	int result = 0;

	do
		result = bound(connection, deadline)
				 ? result_of(send(connection, &request, sizeof(request), MSG_NOSIGNAL))
				 : -ETIMEDOUT;
	while (result == -EINTR);
	return result;
}

/* Take the descriptors of a message. Returns how many there were, and keeps one of them if only one came. */
static uint32_t take_descriptors(struct msghdr *message, int *descriptor)
{
	int taken[DESCRIPTORS_MAX];
	uint32_t count = 0;

	for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part != NULL; part = CMSG_NXTHDR(message, part)) {
		if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
			continue;
		size_t bytes = part->cmsg_len - CMSG_LEN(0);
		for (size_t i = 0; i + sizeof(int) <= bytes && count < DESCRIPTORS_MAX; i += sizeof(int))
			memcpy(&taken[count++], CMSG_DATA(part) + i, sizeof(int));
	}
	*descriptor = count == 1 ? taken[0] : -1;
	for (uint32_t i = 0; i < count && count > 1; i++)
		(void)close(taken[i]);
	return count;
}

/* `length` is 0 if the broker closed the connection. */
static int receive_answer(int connection, uint64_t deadline, struct broker_answer *answer, size_t *length,
			  uint32_t *count, int *descriptor)
{
	union {
		char bytes[CMSG_SPACE(DESCRIPTORS_MAX * sizeof(int))];
		struct cmsghdr aligned;
	} control;
	int result = 0;

	do {
		struct iovec part = {.iov_base = answer, .iov_len = sizeof(*answer)};
		struct msghdr message = {.msg_iov = &part,
					 .msg_iovlen = 1,
					 .msg_control = control.bytes,
					 .msg_controllen = CMSG_LEN(DESCRIPTORS_MAX * sizeof(int))};
		if (!bound(connection, deadline))
			return -ETIMEDOUT;
		ssize_t received = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
		result = result_of(received);
		if (result == 0) {
			*length = (size_t)received;
			*count = take_descriptors(&message, descriptor);
		}
	} while (result == -EINTR);
	return result;
}

/* The texts for what a system call says about a socket. */
static int socket_error(const char *path, int code, uint32_t milliseconds, struct region_error *error)
{
	struct stat status;

	switch (code) {
	case -ENOENT:
	case -ENOTDIR:
		return region_fail(error, -ENOENT,
				   "there is no broker's socket %s: start the broker with 'vicinal region "
				   "serve --socket %s', and mount the socket's directory into the container",
				   path, path);
	case -ECONNREFUSED:
		if (stat(path, &status) == 0 && !S_ISSOCK(status.st_mode))
			return region_fail(error, -ENOTSOCK,
					   "%s is not a broker's socket: name the socket of 'vicinal region "
					   "serve', or write file:%s for a region's file",
					   path, path);
		return region_fail(error, code,
				   "no broker listens on %s, so its broker ended without removing the "
				   "socket: start it again with 'vicinal region serve --socket %s'",
				   path, path);
	case -EACCES:
	case -EPERM:
		return region_fail(error, code,
				   "this user may not connect to the broker's socket %s: let the broker's "
				   "owner allow the user (--allow-uid, --allow-gid), and open the "
				   "directories above the socket to the user",
				   path);
	case -EPROTOTYPE:
		return region_fail(error, code,
				   "%s is the socket of another service: name the socket of 'vicinal region "
				   "serve'",
				   path);
	case -ETIMEDOUT:
		return region_fail(error, code,
				   "the broker at %s did not answer within %.1f s: it is stopped, or not a "
				   "broker; start it again with 'vicinal region serve --socket %s'",
				   path, milliseconds / 1000.0, path);
	case -ECONNRESET:
		return region_fail(error, code,
				   "the broker at %s closed the connection without an answer: see what it "
				   "printed, and start it again with 'vicinal region serve --socket %s'",
				   path, path);
	default:
		return region_fail(error, code, "the broker at %s cannot be asked for its region (%s): %s",
				   path, strerror(-code),
				   code == -EMFILE || code == -ENFILE
					   ? "raise the limit of open files (ulimit -n)"
					   : "see what the broker printed");
	}
}

/* A reason from a broker: bytes that may be anything, shown as one line. */
static const char *reason_of(struct broker_answer *answer)
{
	answer->reason[BROKER_REASON_BYTES - 1] = '\0';
	for (char *at = answer->reason; *at != '\0'; at++)
		if (*at < ' ' || *at > '~')
			*at = '?';
	return answer->reason[0] != '\0' ? answer->reason : "no reason given: see what the broker printed";
}

/* Check what a broker said. The caller closes the descriptor of an answer that is refused. */
static int judge(const char *path, struct broker_answer *answer, size_t length, uint32_t count,
		 struct region_error *error)
{
	if (length < offsetof(struct broker_answer, reason) || answer->magic != BROKER_MAGIC)
		return region_fail(error, -EPROTO,
				   "what listens on %s does not answer as a broker: name the socket of "
				   "'vicinal region serve'",
				   path);
	if (answer->version != BROKER_VERSION)
		return region_fail(error, -EPROTONOSUPPORT,
				   "the broker at %s speaks version %u of its protocol and this provider "
				   "version %u: use one Vicinal for both",
				   path, answer->version, BROKER_VERSION);
	if (length != sizeof(*answer) || (answer->verdict == BROKER_GRANTED) != (count == 1))
		return region_fail(error, -EPROTO,
				   "the broker at %s sent an answer of %zu bytes with %u descriptors, which "
				   "is none of its protocol: use one Vicinal for both",
				   path, length, count);
	if (answer->verdict == BROKER_GRANTED)
		return 0;
	return region_fail(error,
			   answer->verdict == BROKER_REFUSED ? -EACCES
			   : answer->verdict == BROKER_FULL  ? -ENOSPC
							     : -EREMOTEIO,
			   "the broker at %s refused this process: %s", path, reason_of(answer));
}

static int ask(const char *path, enum broker_purpose purpose, uint64_t deadline, struct broker_answer *answer,
	       size_t *length, uint32_t *count, int *descriptor)
{
	int connection = -1;
	int result = open_connection(path, deadline, &connection);

	if (result == 0)
		result = send_request(connection, purpose, deadline);
	if (result == 0)
		result = receive_answer(connection, deadline, answer, length, count, descriptor);
	if (result == 0 && *length == 0) {
		/* A message without bytes, which may have had a descriptor. */
		if (*descriptor >= 0)
			(void)close(*descriptor);
		*descriptor = -1;
		result = -ECONNRESET;
	}
	if (connection >= 0)
		(void)close(connection);
	return result;
}

int broker_fetch(const char *path, enum broker_purpose purpose, uint32_t milliseconds, int *descriptor,
		 struct region_error *error)
{
	const struct timespec pause = {.tv_nsec = AGAIN_NANOSECONDS};
	uint64_t deadline = monotonic_now() + milliseconds * UINT64_C(1000000);
	struct broker_answer answer = {0};
	size_t length = 0;
	uint32_t count = 0;
	int result = 0;

	*descriptor = -1;
	if (strlen(path) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
		return region_fail(error, -ENAMETOOLONG,
				   "the path of the broker's socket %.200s has more than %zu bytes: choose a "
				   "shorter one",
				   path, sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1);
	for (;;) {
		bool again = result == -ECONNRESET;
		result = ask(path, purpose, deadline, &answer, &length, &count, descriptor);
		if (again && result == -ETIMEDOUT)
			result = -ECONNRESET; /* what it did last, before the time was over */
		/* The broker ended before it answered. Its supervisor starts it again. */
		if (result != -ECONNRESET || monotonic_now() >= deadline)
			break;
		(void)nanosleep(&pause, NULL);
	}
	if (result != 0)
		return socket_error(path, result, milliseconds, error);
	result = judge(path, &answer, length, count, error);
	if (result != 0 && *descriptor >= 0) {
		(void)close(*descriptor);
		*descriptor = -1;
	}
	return result;
}

int broker_check(int descriptor, const char *path, struct stat *status, struct region_error *error)
{
	int seals = fcntl(descriptor, F_GET_SEALS);

	/* Only memory has seals: a file of another kind could block this process in a fault. */
	if (seals < 0 || fstat(descriptor, status) != 0 || !S_ISREG(status->st_mode))
		return region_fail(error, -EINVAL,
				   "the broker at %s handed out something else than a memfd: use the broker "
				   "of 'vicinal region serve'",
				   path);
	if ((seals & BROKER_SEALS) != BROKER_SEALS)
		return region_fail(error, -EPERM,
				   "the broker at %s handed out memory that another process can truncate "
				   "(seals %#x): use the broker of 'vicinal region serve'",
				   path, (unsigned)seals);
	if ((seals & BROKER_NO_SEALS) != 0 || (fcntl(descriptor, F_GETFL) & O_ACCMODE) != O_RDWR)
		return region_fail(error, -EACCES,
				   "the broker at %s handed out memory that this process cannot write: use "
				   "the broker of 'vicinal region serve'",
				   path);
	return 0;
}
