/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * network_host.c - finding out that a whole host is gone, though nothing says so: a cable, a switch or
 * the host itself failed, and nobody is left to refuse anything.
 *
 * What is needed is an answer that a kernel gives by itself, however busy or stopped its processes
 * are. It refuses a TCP connection to a port that nobody listens at, and unlike its answers by ICMP
 * it does not ration these. A firewall may drop our question, so silence means something only from
 * a host that answered before: the first question is asked when the first message is sent.
 */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "path/network_path.h"

/* discard: hardly anybody listens there, and who does says that he is there too. */
#define PORT 9U

/* Asked so often in a timeout, and not less often than this. */
#define QUESTIONS_IN_TIMEOUT 8U
#define LAST_NANOSECONDS UINT64_C(4000000000)
/* One may be lost on its way. */
#define QUESTIONS_LEAST 3U

/* Who was heard so long ago is silent. */
#define SILENT_NANOSECONDS UINT64_C(500000000)

static bool set_port(struct sockaddr_storage *address)
{
	if (address->ss_family == AF_INET)
		((struct sockaddr_in *)(void *)address)->sin_port = htons(PORT);
	else if (address->ss_family == AF_INET6)
		((struct sockaddr_in6 *)(void *)address)->sin6_port = htons(PORT);
	else
		return false;
	return true;
}

void network_host_end(struct network_peer *peer)
{
	if (peer->host > 0) {
		(void)close(peer->host);
		peer->network->questions--;
	}
	peer->host = 0;
}

static void take_answer(struct network_peer *peer, int error)
{
	/* Other errors are our own kernel's, or a router's. */
	if (error == 0 || error == ECONNREFUSED || error == ECONNRESET) {
		peer->host_answers = true;
		peer->host_questions = 0;
	}
	network_host_end(peer);
}

static void ask(struct network_peer *peer, const struct core_name *name, uint64_t now)
{
	struct sockaddr_storage address;
	socklen_t length = network_address_of(name, &address);

	peer->host_asked = now;
	if (length == 0 || !set_port(&address) || peer->network->questions == NETWORK_QUESTIONS_MOST)
		return;
	int question = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (question <= 0)
		return;
	peer->host = question;
	peer->network->questions++;
	if (peer->host_questions++ == 0)
		peer->host_silent = now;
	/* On a loopback the answer comes within the call. */
	int error = connect(question, (const struct sockaddr *)&address, length) == 0 ? 0 : errno;
	if (error != EINPROGRESS)
		take_answer(peer, error);
}

/* Look for the answer to what was asked. */
static void listen_for(struct network_peer *peer, uint64_t now, uint64_t interval)
{
	struct pollfd question = {.fd = peer->host, .events = POLLOUT};
	int error = 0;
	socklen_t length = sizeof(error);

	if (poll(&question, 1, 0) <= 0) {
		if (now - peer->host_asked > interval)
			network_host_end(peer);
		return;
	}
	if (getsockopt(peer->host, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
		error = errno;
	take_answer(peer, error);
}

bool network_host_is_gone(struct network_peer *peer, const struct core_name *name, uint64_t now,
			  uint64_t timeout)
{
	uint64_t interval = timeout / QUESTIONS_IN_TIMEOUT;

	if (interval > LAST_NANOSECONDS)
		interval = LAST_NANOSECONDS;
	if (peer->host > 0)
		listen_for(peer, now, interval);
	bool silent = now - peer->heard > SILENT_NANOSECONDS;
	if (!silent)
		peer->host_questions = 0;
	if (!peer->peer->sending)
		return false;
	if (peer->host_answers && peer->host_questions >= QUESTIONS_LEAST &&
	    now - peer->host_silent > timeout)
		return true;
	if (peer->host <= 0 && (peer->host_asked == 0 || (silent && now - peer->host_asked > interval)))
		ask(peer, name, now);
	return false;
}
