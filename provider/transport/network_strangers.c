/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * network_strangers.c - what may be sent to strangers: peers that only their own frames made known.
 *
 * A stranger that knows our nonce can name any address in its HELLO, and forge any source address
 * of a datagram. Nothing is sent to such an address until a random challenge was answered from
 * there: no liveness question, no answer to notices, and no descriptor is used. Every peer sends a
 * datagram before its first frame, and again while it hears nothing, from the socket that is bound
 * to its core's address. The challenge goes back to the source of the datagram, one challenge for
 * each datagram and no longer than it, so an attacker cannot amplify traffic.
 *
 * What the application itself requests, the answer to a large message that it receives from any
 * source, also waits for the challenge to be answered, but not for ever: UDP may be blocked between
 * the hosts, or there is no such socket. Then a few strangers are answered without a proof.
 */
#include <netinet/in.h>
#include <sys/random.h>

#include "transport/network_transport.h"

/* A lost datagram is repeated after half a second, and again one second later. */
#define PROOF_NANOSECONDS UINT64_C(2000000000)

static const struct identity *identity_of(const struct network_peer *peer)
{
	return &peer->network->directory->identities[peer->index];
}

bool network_is_confirmed(const struct network_peer *peer)
{
	return peer->proved_address || peer->peer->attachment != NULL || identity_of(peer)->told;
}

bool network_may_reach(struct network_peer *peer)
{
	struct network *network = peer->network;
	bool can_prove =
		network->keepalive_bound && (identity_of(peer)->name.flags & CORE_NAME_KEEPALIVE) != 0;

	if (peer->unproved || network_is_confirmed(peer))
		return true;
	if (peer->wanted == 0)
		peer->wanted = monotonic_now();
	if (can_prove && monotonic_now() - peer->met < PROOF_NANOSECONDS)
		return false;
	if (network->unproved == NETWORK_UNPROVED_MAX)
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

static bool is_same_address(const struct sockaddr_storage *one, const struct sockaddr_storage *other)
{
	return memcmp(one, other, sizeof(*one)) == 0;
}

/*
 * Returns 0 without a random number. Then no challenge is sent, and no stranger can prove its
 * address.
 */
static uint64_t new_challenge(void)
{
	uint64_t challenge = 0;

	return getrandom(&challenge, sizeof(challenge), GRND_NONBLOCK) == sizeof(challenge) ? challenge : 0;
}

struct network_peer *network_beyond(const struct network *network, uint64_t nonce)
{
	uint32_t index = directory_find(network->directory, nonce);
	const struct peer *peer = index != DIRECTORY_NONE
					  ? network->transport->peers[network->transport->members + index]
					  : NULL;

	return peer != NULL ? peer->beyond : NULL;
}

/*
 * Remember the first contact of a peer that has not introduced itself yet: its HELLO comes by the
 * core.
 */
static uint64_t keep_contact(struct network *network, uint64_t nonce, uint64_t answer,
			     const struct sockaddr_storage *address)
{
	struct first_contact *contact = NULL;

	for (uint32_t i = 0; i < NETWORK_FIRST_CONTACTS; i++)
		if (network->contacts[i].challenge != 0 && network->contacts[i].nonce == nonce &&
		    is_same_address(&network->contacts[i].address, address))
			contact = &network->contacts[i];
	if (contact == NULL) {
		contact = &network->contacts[network->next_contact++ % NETWORK_FIRST_CONTACTS];
		*contact = (struct first_contact){
			.nonce = nonce, .address = *address, .challenge = new_challenge()};
	}
	contact->answered = contact->answered || (contact->challenge != 0 && answer == contact->challenge);
	return contact->answered ? 0 : contact->challenge;
}

uint64_t network_take_first_contact(struct network *network, uint64_t nonce, uint64_t answer,
				    const struct sockaddr_storage *address)
{
	struct network_peer *peer = network_beyond(network, nonce);

	if (peer == NULL)
		return keep_contact(network, nonce, answer, address);
	if (network_is_confirmed(peer) || !network_is_at(peer, address))
		return 0;
	if (peer->challenge == 0)
		peer->challenge = new_challenge();
	peer->proved_address = peer->challenge != 0 && answer == peer->challenge;
	return peer->proved_address ? 0 : peer->challenge;
}

void network_find_first_contact(struct network_peer *peer)
{
	const struct network *network = peer->network;

	for (uint32_t i = 0; i < NETWORK_FIRST_CONTACTS; i++) {
		const struct first_contact *contact = &network->contacts[i];
		if (contact->challenge == 0 || contact->nonce != peer->peer->nonce ||
		    !network_is_at(peer, &contact->address))
			continue;
		peer->challenge = contact->challenge;
		peer->proved_address = peer->proved_address || contact->answered;
	}
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
		transport_fail(peer->network->transport, peer->peer, -ECONNRESET,
			       "it does not prove that it is at the network address that it named");
}
