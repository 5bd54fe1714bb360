/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * network_pulse.c - finding out that a process beyond the region ended, though the core does not say
 * so: tcp retries a connection that is refused for ever, and cannot tell one that is gone from one
 * that does not look.
 *
 * Each endpoint binds a UDP socket to the address and port that the core has for its own protocol,
 * and says so in its address. A datagram to it is kept or dropped by the kernel while the process lives,
 * however busy or stopped it is; afterwards the kernel answers that nobody has the port, and if the whole
 * host is gone, a router or our own kernel says that it cannot be reached.
 *
 * Whoever sends to a peer for the first time knocks there: an endpoint whose application knows nobody
 * beyond the region does not look at the core, but hears that.
 */
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "path/network_path.h"

/* One that is silent is asked after so long, and each time after twice as long, up to the second. */
#define FIRST_NANOSECONDS UINT64_C(500000000)
#define LAST_NANOSECONDS UINT64_C(4000000000)

/* Refused for so long, without a frame meanwhile, it is gone. */
#define REFUSED_NANOSECONDS UINT64_C(300000000)

socklen_t network_address_of(const struct core_name *name, struct sockaddr_storage *address)
{
	*address = (struct sockaddr_storage){0};
	memcpy(address, name->bytes, name->length);
	if (address->ss_family == AF_INET && name->length >= sizeof(struct sockaddr_in))
		return sizeof(struct sockaddr_in);
	if (address->ss_family == AF_INET6 && name->length >= sizeof(struct sockaddr_in6))
		return sizeof(struct sockaddr_in6);
	return 0;
}

static int open_socket(const struct sockaddr_storage *address)
{
	return socket(address->ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

void network_pulse_open(struct network *network)
{
	struct core_name *name = &network->core->name;
	struct sockaddr_storage address;
	socklen_t length = network_address_of(name, &address);
	const int least = 1;

	network->pulse = length > 0 ? open_socket(&address) : -1;
	if (network->pulse < 0)
		return;
	/* Of what comes one is read at most, and says that there was one: no more need to be kept. */
	(void)setsockopt(network->pulse, SOL_SOCKET, SO_RCVBUF, &least, sizeof(least));
	if (bind(network->pulse, (const struct sockaddr *)&address, length) == 0) {
		name->flags |= CORE_NAME_PULSE;
		return;
	}
	(void)close(network->pulse);
	network->pulse = -1;
}

void network_pulse_close(struct network *network)
{
	if (network->pulse >= 0)
		(void)close(network->pulse);
	network->pulse = -1;
}

void network_knock(struct network *network, const struct core_name *name)
{
	struct sockaddr_storage address;
	socklen_t length = network_address_of(name, &address);

	/* If it is lost, the first question whether the peer is still there does as well. */
	if (network->pulse >= 0 && (name->flags & CORE_NAME_PULSE) != 0 && length > 0)
		(void)sendto(network->pulse, "", 0, 0, (const struct sockaddr *)&address, length);
}

bool network_was_knocked(const struct network *network)
{
	char nothing = 0;

	/* Where nobody can knock, anybody may have come. */
	return network->pulse < 0 || recv(network->pulse, &nothing, sizeof(nothing), 0) >= 0;
}

static void end_pulse(struct network_peer *peer)
{
	if (peer->probe > 0)
		(void)close(peer->probe);
	peer->probe = 0;
}

void network_probe_end(struct network_peer *peer)
{
	end_pulse(peer);
	network_host_end(peer);
}

/* Ask, and remember where the answer comes. */
static void ask(struct network_peer *peer, const struct core_name *name)
{
	struct sockaddr_storage address;
	socklen_t length = network_address_of(name, &address);

	if (peer->probe == 0 && length > 0) {
		peer->probe = open_socket(&address);
		if (peer->probe <= 0 || connect(peer->probe, (const struct sockaddr *)&address, length) != 0)
			end_pulse(peer);
	}
	if (peer->probe > 0)
		(void)send(peer->probe, "", 0, 0);
}

/* What the kernel heard since. */
static int answer(const struct network_peer *peer)
{
	char nothing = 0;

	if (peer->probe <= 0 || recv(peer->probe, &nothing, sizeof(nothing), 0) >= 0)
		return 0;
	return errno;
}

void network_probe(struct network_peer *peer, const struct core_name *name, uint64_t now, uint64_t timeout)
{
	int error = answer(peer);

	if (network_host_is_gone(peer, name, now, timeout)) {
		network_fail(peer, ETIMEDOUT);
		return;
	}
	/*
	 * What it sent before may still be on its way to us through the core: that goes first. It is not
	 * asked again meanwhile: a kernel answers a host's datagrams to nobody six times at once, and then
	 * once a second, and others of our host ask as well.
	 */
	if (error == ECONNREFUSED)
		peer->refused = now;
	else if (peer->heard > peer->refused)
		peer->refused = 0;
	if (peer->refused != 0) {
		if (now - peer->refused > REFUSED_NANOSECONDS)
			network_fail(peer, ECONNREFUSED);
		return;
	}
	if (error == EHOSTUNREACH || error == ENETUNREACH) {
		peer->unreachable = peer->unreachable == 0 ? now : peer->unreachable;
		if (now - peer->unreachable > timeout) {
			network_fail(peer, error);
			return;
		}
	}
	if (now - peer->heard < peer->patience || now - peer->asked < peer->patience) {
		if (now - peer->heard < FIRST_NANOSECONDS) {
			end_pulse(peer);
			peer->patience = FIRST_NANOSECONDS;
			peer->unreachable = 0;
		}
		return;
	}
	peer->asked = now;
	peer->patience = peer->patience < FIRST_NANOSECONDS  ? FIRST_NANOSECONDS
			 : peer->patience < LAST_NANOSECONDS ? 2 * peer->patience
							     : LAST_NANOSECONDS;
	if ((name->flags & CORE_NAME_PULSE) != 0)
		ask(peer, name);
	else if (peer->peer->sending)
		(void)network_send_notice(peer, FRAME_PING);
}
