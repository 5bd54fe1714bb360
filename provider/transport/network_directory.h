/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * network_directory.h - who the peers beyond the region are, each at an index that it keeps: so that
 * an index means the same peer in all endpoints and address vectors of a domain.
 */
#ifndef VICINAL_TRANSPORT_NETWORK_DIRECTORY_H
#define VICINAL_TRANSPORT_NETWORK_DIRECTORY_H

#include "transport/network_core.h"

/*
 * So many peers beyond the region an endpoint may have in its life. What is reserved for each that
 * there is not is address space alone.
 */
#define NETWORK_PEERS_MAX 32768U
/* At most so many of them said themselves who they are, and the application did not. */
#define NETWORK_STRANGERS_MAX 1024U
#define DIRECTORY_NONE UINT32_MAX

struct identity {
	uint64_t nonce;
	struct core_name name;
	bool told; /* by the application, or by a region: not only by a frame from the network */
};

/* All zero at first. */
struct directory {
	struct identity *identities;
	uint32_t count;
	uint32_t strangers; /* nobody told of them */
	uint32_t capacity;
	uint32_t *table; /* indices + 1 by their nonces' hash, 0 where there is none; twice the capacity */
	uint64_t seed;   /* peers choose nonces */
};

void directory_close(struct directory *directory);
/* The index of who has this nonce, or DIRECTORY_NONE. */
uint32_t directory_find(const struct directory *directory, uint64_t nonce);
/*
 * The same, given one now if there was none. DIRECTORY_NONE if the nonce is known by another name,
 * there are too many, or no memory is left.
 */
uint32_t directory_add(struct directory *directory, uint64_t nonce, const struct core_name *name);
/* The same of a stranger, who only says so. DIRECTORY_NONE also if there are too many strangers. */
uint32_t directory_admit(struct directory *directory, uint64_t nonce, const struct core_name *name);

static inline bool core_name_is(const struct core_name *one, const struct core_name *other)
{
	return one->provider == other->provider && one->length == other->length &&
	       one->flags == other->flags && memcmp(one->bytes, other->bytes, one->length) == 0;
}

#endif
