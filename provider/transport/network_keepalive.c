/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * network_keepalive.c - detecting that a network peer's process ended, which the core does not
 * report: tcp retries a refused connection for ever, and cannot tell a dead peer from a peer that
 * does not poll.
 *
 * Each endpoint binds a UDP socket to the address and port that the core uses for its own protocol,
 * and says so in its address. While the process lives, busy or stopped, the kernel queues or drops
 * a datagram to that socket. Afterwards the kernel answers that no process has the port. If the
 * whole host is gone, a router or our own kernel answers that the host is unreachable. One socket
 * asks all peers: the kernel keeps the answers in the socket's error queue, each with the address
 * that was asked.
 *
 * The datagram contains the nonces of both ends. It also makes an endpoint whose application knows
 * no network peer poll its core. If only the sender's own frames made it known, it gets a datagram
 * with a challenge back. Its next datagram contains the challenge as answer, which proves that the
 * sender is at the address that it named.
 */
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* This header needs struct timespec. */
#include <linux/errqueue.h>

#include "transport/network_transport.h"

/*
 * A silent peer is asked after the first interval; each further interval is twice as long, up to
 * the last.
 */
#define FIRST_NANOSECONDS UINT64_C(500000000)
#define LAST_NANOSECONDS UINT64_C(4000000000)

/* A peer is gone if its port was refused for this time and no frame came meanwhile. */
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

/* The maximum bytes of queued datagrams and kernel answers. */
#define BUFFER_BYTES (64 * 1024)

static void set_options(int keepalive, int family)
{
	const int most = BUFFER_BYTES;
	const int on = 1;

	(void)setsockopt(keepalive, SOL_SOCKET, SO_RCVBUF, &most, sizeof(most));
	if (family == AF_INET6)
		(void)setsockopt(keepalive, IPPROTO_IPV6, IPV6_RECVERR, &on, sizeof(on));
	else
		(void)setsockopt(keepalive, IPPROTO_IP, IP_RECVERR, &on, sizeof(on));
}

void network_keepalive_open(struct network *network)
{
	struct core_name *name = &network->core->name;
	struct sockaddr_storage address;
	socklen_t length = network_address_of(name, &address);

	network->keepalive = length > 0 ? open_socket(&address) : -1;
	if (network->keepalive < 0)
		return;
	set_options(network->keepalive, address.ss_family);
	/* An unbound socket can still ask peers. */
	network->keepalive_bound = bind(network->keepalive, (const struct sockaddr *)&address, length) == 0;
	if (network->keepalive_bound)
		name->flags |= CORE_NAME_KEEPALIVE;
}

void network_keepalive_close(struct network *network)
{
	if (network->keepalive >= 0)
		(void)close(network->keepalive);
	network->keepalive = -1;
}

/*
 * ---- receiving ----
 */

/*
 * A datagram, in little endian. A peer of another version is ignored here: its frames, which have the same
 * version, are refused with a message.
 */
struct keepalive_datagram {
	uint32_t magic;
	uint32_t version; /* FRAME_VERSION */
	uint64_t to;
	uint64_t from;
	uint64_t challenge; /* the receiver must answer it; 0: none */
	uint64_t answer;    /* the last challenge received; 0: none */
};
#define KEEPALIVE_MAGIC 0x4b4e4356U /* the bytes "VCNK" */
/* The maximum number of datagrams, and of answers, that one call takes. */
#define TAKEN_AT_ONCE 32

/* Returns 0 if the datagram was sent, else a negative errno. */
static int send_datagram(const struct network *network, const struct keepalive_datagram *says,
			 const struct sockaddr_storage *address)
{
	socklen_t length =
		address->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
	ssize_t sent = sendto(network->keepalive, says, sizeof(*says), MSG_DONTWAIT,
			      (const struct sockaddr *)address, length);

	return sent < 0 ? -errno : 0;
}

/*
 * Answer a challenge only to peers that the application or a region named, or that answered our
 * challenge. No other address gets an answer.
 */
static void answer(const struct network *network, const struct keepalive_datagram *said,
		   const struct sockaddr_storage *from)
{
	const struct network_peer *peer = network_beyond(network, said->from);
	struct keepalive_datagram says = {KEEPALIVE_MAGIC, FRAME_VERSION, said->from, network->nonce, 0,
					  said->challenge};

	if (peer != NULL && network_is_confirmed(peer) && network_is_at(peer, from))
		(void)send_datagram(network, &says, from);
}

/* Takes only datagrams with our nonce. All others are from strangers, and are dropped. */
static bool take_datagrams(struct network *network)
{
	struct keepalive_datagram said;
	bool contacted = false;

	for (int i = 0; i < TAKEN_AT_ONCE; i++) {
		struct sockaddr_storage from = {0};
		socklen_t length = sizeof(from);
		ssize_t bytes = recvfrom(network->keepalive, &said, sizeof(said), MSG_DONTWAIT | MSG_TRUNC,
					 (struct sockaddr *)&from, &length);
		if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			break;
		if (bytes != (ssize_t)sizeof(said) || said.magic != KEEPALIVE_MAGIC ||
		    said.version != FRAME_VERSION || said.to != network->nonce)
			continue;
		contacted = true;
		if (said.challenge != 0)
			answer(network, &said, &from);
		uint64_t challenge = network_take_first_contact(network, said.from, said.answer, &from);
		struct keepalive_datagram asks = {KEEPALIVE_MAGIC, FRAME_VERSION, said.from,
						  network->nonce,  challenge,     0};
		if (challenge != 0)
			(void)send_datagram(network, &asks, &from);
	}
	return contacted;
}

static void note_error(struct network *network, const struct sockaddr_storage *asked, int error)
{
	const struct transport *transport = network->transport;

	for (uint32_t source = transport->members; source < transport->peer_end; source++) {
		struct network_peer *peer =
			transport->peers[source] != NULL ? transport->peers[source]->beyond : NULL;
		if (peer != NULL && peer->asked != 0 && network_is_at(peer, asked))
			peer->keepalive_error = error;
	}
}

static void take_errors(struct network *network)
{
	union {
		struct cmsghdr align;
		char bytes[256];
	} control;

	for (int i = 0; i < TAKEN_AT_ONCE; i++) {
		struct sockaddr_storage asked = {0};
		struct msghdr message = {
			.msg_name = &asked,
			.msg_namelen = sizeof(asked),
			.msg_control = &control,
			.msg_controllen = sizeof(control),
		};
		if (recvmsg(network->keepalive, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
			return;
		for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header != NULL;
		     header = CMSG_NXTHDR(&message, header)) {
			struct sock_extended_err error;
			if (!((header->cmsg_level == IPPROTO_IP && header->cmsg_type == IP_RECVERR) ||
			      (header->cmsg_level == IPPROTO_IPV6 && header->cmsg_type == IPV6_RECVERR)))
				continue;
			memcpy(&error, CMSG_DATA(header), sizeof(error));
			note_error(network, &asked, (int)error.ee_errno);
		}
	}
}

void network_keepalive_take(struct network *network)
{
	if (network->keepalive < 0)
		return;
	take_errors(network);
	(void)take_datagrams(network);
}

bool network_was_contacted(struct network *network)
{
	/* If no first contact can arrive, any peer may have sent something. */
	return !network->keepalive_bound || take_datagrams(network);
}

/*
 * ---- sending ----
 */

void network_first_contact(struct network_peer *to)
{
	struct network *network = to->network;
	const struct core_name *name = &network->directory->identities[to->index].name;
	struct keepalive_datagram says = {
		KEEPALIVE_MAGIC, FRAME_VERSION, to->peer->nonce, network->nonce, 0, 0};
	struct sockaddr_storage address;
	int error = 0;

	if (network->keepalive < 0 || (name->flags & CORE_NAME_KEEPALIVE) == 0 ||
	    network_address_of(name, &address) == 0)
		return;
	/* The first error may belong to a question to another peer. */
	for (int i = 0; i < 2; i++) {
		error = send_datagram(network, &says, &address);
		if (error == 0)
			return;
		if (i == 0)
			take_errors(network);
	}
	if (error == -EHOSTUNREACH || error == -ENETUNREACH)
		to->keepalive_error = -error;
}

void network_probe_end(struct network_peer *peer)
{
	peer->keepalive_error = 0;
	network_host_end(peer);
}

void network_probe(struct network_peer *peer, const struct core_name *name, uint64_t now, uint64_t timeout)
{
	int error = peer->keepalive_error;

	peer->keepalive_error = 0;
	if (!network_is_confirmed(peer))
		return;
	if (network_host_is_gone(peer, name, now, timeout)) {
		network_fail(peer, ETIMEDOUT);
		return;
	}
	/*
	 * Frames that the peer sent before its end may still be on their way through the core, and
	 * are taken first. The peer is not asked again meanwhile: a kernel answers datagrams for
	 * unused ports to one host six times at once, and then once a second, and other processes
	 * on our host ask as well.
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
			peer->patience = FIRST_NANOSECONDS;
			peer->unreachable = 0;
		}
		return;
	}
	peer->asked = now;
	peer->patience = peer->patience < FIRST_NANOSECONDS  ? FIRST_NANOSECONDS
			 : peer->patience < LAST_NANOSECONDS ? 2 * peer->patience
							     : LAST_NANOSECONDS;
	if ((name->flags & CORE_NAME_KEEPALIVE) != 0)
		network_first_contact(peer);
	else if (peer->peer->sending)
		(void)network_send_notice(peer, FRAME_PING);
}
