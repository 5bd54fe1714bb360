/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * network_host.c - detecting that a whole host is gone without notice: a cable, a switch or the
 * host itself failed, and no kernel is left to refuse connections.
 *
 * The check needs an answer that a kernel gives by itself, even if its processes are busy or
 * stopped. A kernel refuses a TCP connection to a port without a listener and, unlike ICMP answers,
 * does not rate-limit these refusals. A firewall may drop the question, so silence counts only in
 * two cases:
 *
 * - The host has answered before. The first question is asked when the first message is sent.
 * - The core could not deliver its first frame to the peer either, and the host does not answer at
 *   the core's port. A firewall that drops that question also drops the core's packets.
 */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/network_transport.h"

/*
 * The discard port: there is rarely a listener, and a listener's answer also shows that the host is
 * there.
 */
#define PORT 9U

/* Questions in one timeout, and the longest interval between two. */
#define QUESTIONS_IN_TIMEOUT 8U
#define LAST_NANOSECONDS UINT64_C(4000000000)
/* A question may be lost on the network. */
#define QUESTIONS_MIN 3U
/*
 * Before the first frame, the questions alternate between the two ports, so there are twice as
 * many.
 */
#define FIRST_QUESTIONS_MIN 6U

/* A peer is silent if no frame came from it for this time. */
#define SILENT_NANOSECONDS UINT64_C(500000000)

static in_port_t *port_in(struct sockaddr_storage *address)
{
	if (address->ss_family == AF_INET)
		return &((struct sockaddr_in *)(void *)address)->sin_port;
	return &((struct sockaddr_in6 *)(void *)address)->sin6_port;
}

/*
 * A port that answered is used again. Until then, questions alternate between the discard port and
 * the core's port.
 */
static void set_port(struct network_peer *peer, struct sockaddr_storage *address)
{
	in_port_t *port = port_in(address);
	bool own = peer->network->core->by_tcp && peer->host_port == htons(PORT);

	if (!peer->host_answers)
		peer->host_port = own ? *port : htons(PORT);
	*port = peer->host_port;
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
	/* Other errors come from our own kernel or from a router. */
	if (error == 0 || error == ECONNREFUSED || error == ECONNRESET) {
		peer->host_answers = true;
		peer->host_questions = 0;
	}
	network_host_end(peer);
}

static void ask(struct network_peer *peer, const struct core_name *name, uint64_t now)
{
	/* The listener at the core's port must not see a connection that is never used. */
	const struct linger reset = {.l_onoff = 1};
	struct sockaddr_storage address;
	socklen_t length = network_address_of(name, &address);

	peer->host_asked = now;
	if (length == 0 || peer->network->questions == NETWORK_QUESTIONS_MAX)
		return;
	set_port(peer, &address);
	int question = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (question <= 0)
		return;
	(void)setsockopt(question, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	peer->host = question;
	peer->network->questions++;
	if (peer->host_questions++ == 0)
		peer->host_silent = now;
	/* On a loopback interface, the answer comes within the call. */
	int error = connect(question, (const struct sockaddr *)&address, length) == 0 ? 0 : errno;
	if (error != EINPROGRESS)
		take_answer(peer, error);
}

/* Check for the answer to the last question. */
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

/* Nothing ever came from the peer, and nothing reached it. */
static bool is_untouched(const struct network_peer *peer)
{
	return peer->network->core->by_tcp && !peer->heard_once && !peer->greeted;
}

static bool is_silent_for(const struct network_peer *peer, uint64_t now, uint64_t timeout)
{
	uint32_t least = peer->host_answers ? QUESTIONS_MIN : FIRST_QUESTIONS_MIN;

	return (peer->host_answers || is_untouched(peer)) && peer->host_questions >= least &&
	       now - peer->host_silent > timeout;
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
	if (is_silent_for(peer, now, timeout))
		return true;
	if (peer->host <= 0 && (peer->host_asked == 0 || (silent && now - peer->host_asked > interval)))
		ask(peer, name, now);
	return false;
}
