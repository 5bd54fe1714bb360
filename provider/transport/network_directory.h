/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * network_directory.h - the identities of peers outside the regions, each at a fixed index, so that
 * an index means the same peer in all endpoints and address vectors of a domain.
 */
#ifndef VICINAL_TRANSPORT_NETWORK_DIRECTORY_H
#define VICINAL_TRANSPORT_NETWORK_DIRECTORY_H

#include "transport/network_core.h"

/*
 * The maximum number of network peers in the lifetime of an endpoint. For peers that do not exist,
 * only address space is reserved.
 */
#define NETWORK_PEERS_MAX 32768U
/* The maximum number of strangers: peers that only their own frames made known. */
#define NETWORK_STRANGERS_MAX 1024U
#define DIRECTORY_NONE UINT32_MAX

struct identity {
	uint64_t nonce;
	struct core_name name;
	bool told; /* by the application or a region, not only by a frame from the network */
};

/* All zero at first. */
struct directory {
	struct identity *identities;
	uint32_t count;
	uint32_t strangers; /* identities that are not `told` */
	uint32_t capacity;
	uint32_t *table; /* indices + 1 by the hash of the nonce, 0 for a free entry; twice the capacity */
	uint64_t seed;   /* of the hash, because peers choose nonces */
};

void directory_close(struct directory *directory);
/* The index of the peer with this nonce, or DIRECTORY_NONE. */
uint32_t directory_find(const struct directory *directory, uint64_t nonce);
/*
 * The same, but adds the peer if necessary. DIRECTORY_NONE if the nonce is known with another
 * address, there are too many peers, or no memory is left.
 */
uint32_t directory_add(struct directory *directory, uint64_t nonce, const struct core_name *name);
/*
 * The same for a stranger, whose identity is unconfirmed. DIRECTORY_NONE also if there are too many
 * strangers.
 */
uint32_t directory_admit(struct directory *directory, uint64_t nonce, const struct core_name *name);

static inline bool core_name_is(const struct core_name *one, const struct core_name *other)
{
	return one->provider == other->provider && one->length == other->length &&
	       one->flags == other->flags && memcmp(one->bytes, other->bytes, one->length) == 0;
}

#endif
