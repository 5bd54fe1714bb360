/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * network_strangers.c - what may go to peers that only said themselves who they are, and where.
 *
 * A stranger that knows our nonce can name any address in its HELLO. Nothing goes there until a datagram
 * with both nonces came from that address: no question whether it lives, no answer to its notices, and no
 * descriptor is spent. Every peer sends such a datagram before its first frame, and again while it is not
 * answered, from the socket that is bound to its core's address.
 *
 * What the application itself asked for, the answer to a large message that it receives from anybody, waits
 * for that datagram too, but not for ever: UDP may not pass between the hosts, or there is no such socket.
 * Then a few strangers are answered without proof.
 */
#include <netinet/in.h>

#include "path/network_path.h"

/* A datagram that was lost on the way comes again after half a second, and after one more. */
#define PROOF_NANOSECONDS UINT64_C(2000000000)

static const struct identity *identity_of(const struct network_peer *peer)
{
	return &peer->network->directory->identities[peer->place];
}

bool network_is_confirmed(const struct network_peer *peer)
{
	return peer->proved_address || peer->peer->port != NULL || identity_of(peer)->told;
}

bool network_may_reach(struct network_peer *peer)
{
	struct network *network = peer->network;
	bool can_prove = network->pulse_bound && (identity_of(peer)->name.flags & CORE_NAME_PULSE) != 0;

	if (peer->unproved || network_is_confirmed(peer))
		return true;
	if (peer->wanted == 0)
		peer->wanted = monotonic_now();
	if (can_prove && monotonic_now() - peer->met < PROOF_NANOSECONDS)
		return false;
	if (network->unproved == NETWORK_UNPROVED_MOST)
		return false;
	network->unproved++;
	peer->unproved = true;
	return true;
}

bool network_is_at(const struct network_peer *peer, const struct sockaddr_storage *address)
{
	struct sockaddr_storage own;

	if (network_address_of(&identity_of(peer)->name, &own) == 0 || own.ss_family != address->ss_family)
		return false;
	if (own.ss_family == AF_INET) {
		const struct sockaddr_in *one = (const struct sockaddr_in *)(const void *)&own;
		const struct sockaddr_in *other = (const struct sockaddr_in *)(const void *)address;
		return one->sin_port == other->sin_port && one->sin_addr.s_addr == other->sin_addr.s_addr;
	}
	const struct sockaddr_in6 *one = (const struct sockaddr_in6 *)(const void *)&own;
	const struct sockaddr_in6 *other = (const struct sockaddr_in6 *)(const void *)address;
	return one->sin6_port == other->sin6_port &&
	       memcmp(&one->sin6_addr, &other->sin6_addr, sizeof(one->sin6_addr)) == 0;
}

void network_take_knock(struct network *network, uint64_t nonce, const struct sockaddr_storage *address)
{
	uint32_t place = directory_find(network->directory, nonce);
	const struct peer *peer =
		place != DIRECTORY_NONE ? network->path->peers[network->path->members + place] : NULL;

	if (peer != NULL && peer->beyond != NULL) {
		peer->beyond->proved_address =
			peer->beyond->proved_address || network_is_at(peer->beyond, address);
		return;
	}
	network->knocks[network->next_knock++ % NETWORK_KNOCKS] = (struct knock){nonce, *address};
}

void network_find_knock(struct network_peer *peer)
{
	const struct network *network = peer->network;

	for (uint32_t i = 0; i < NETWORK_KNOCKS; i++)
		if (network->knocks[i].nonce == peer->peer->nonce &&
		    network_is_at(peer, &network->knocks[i].address))
			peer->proved_address = true;
}

void network_check_stranger(struct network_peer *peer, uint64_t now, uint64_t timeout)
{
	if (peer->unproved && network_is_confirmed(peer)) {
		peer->unproved = false;
		peer->network->unproved--;
	}
	if (peer->wanted == 0)
		return;
	if (peer->reachable)
		peer->wanted = 0;
	else if (now > peer->wanted && now - peer->wanted > timeout + PROOF_NANOSECONDS)
		path_fail(peer->network->path, peer->peer, -ECONNRESET,
			  "it does not show that it is at the network address that it named");
}
