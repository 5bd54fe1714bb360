/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * network_core.h - the provider of the same libfabric that carries our frames, used through
 * libfabric's public API.
 */
#ifndef VICINAL_TRANSPORT_NETWORK_CORE_H
#define VICINAL_TRANSPORT_NETWORK_CORE_H

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include "region/route.h"

/* The maximum length of an address of the core: a sockaddr_in6 fits. */
#define CORE_NAME_MAX MEMBER_CORE_MAX

/* An address of the core. */
struct core_name {
	uint16_t provider; /* core_provider_number() of the core's name; must be the same at both ends */
	uint8_t length;
	uint8_t flags;
	uint8_t bytes[CORE_NAME_MAX];
};
/* The UDP port of the same number is bound: see network_keepalive.c. */
#define CORE_NAME_KEEPALIVE 1U

struct core {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *endpoint;
	struct core_name name; /* our own address */
	size_t inject;         /* bytes that fi_inject() takes */
	bool stale;            /* may read into freed memory: see registers_safely() */
	bool reads;            /* fi_read() exists and is reliable */
	bool by_tcp;           /* addresses contain TCP ports, at which a kernel answers */
	bool reads_pieces;     /* fi_readmsg() takes two pieces at once */
	uint64_t mr_key;       /* the last key that we chose, if the core does not choose keys */
	void (*close)(struct core *core);
};

/*
 * Open the provider `wanted` (from VICINAL_NET; NULL: the first of a fixed order that can be
 * opened) on `interface` (NULL: the first that is not a loopback). Returns 0, -ENODEV if there is
 * none, or another negative errno; both errors with a text.
 */
int core_open(struct core **core, const char *wanted, const char *interface, struct region_error *error);
void core_close(struct core *core);

/*
 * May `address` be handed to the core? It may come from a stranger, and the core derives the kind
 * and length of the address from its first bytes.
 */
static inline bool core_accepts(const struct core *core, const struct core_name *address)
{
	uint32_t format = core->info->addr_format;
	bool has_family = format == FI_SOCKADDR || format == FI_SOCKADDR_IN || format == FI_SOCKADDR_IN6;

	return address->provider == core->name.provider && address->length == core->name.length &&
	       (!has_family || memcmp(address->bytes, core->name.bytes, sizeof(sa_family_t)) == 0);
}

/* A hash of a provider's name, which is part of an address. */
uint16_t core_provider_number(const char *name);

#endif
