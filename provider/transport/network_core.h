/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * network_core.h - the provider of the same libfabric that carries our frames, by its public interface.
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

/* Of an address of the core: a sockaddr_in6 fits. */
#define CORE_NAME_MAX MEMBER_CORE_MAX

/* One of its addresses. */
struct core_name {
	uint16_t provider; /* which core, as core_provider_number() says: both ends must have the same */
	uint8_t length;
	uint8_t flags;
	uint8_t bytes[CORE_NAME_MAX];
};
/* The same port is bound for UDP: see network_keepalive.c. */
#define CORE_NAME_KEEPALIVE 1U

struct core {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *endpoint;
	struct core_name name; /* our own */
	size_t inject;         /* bytes that fi_inject() takes */
	bool stale;            /* it may read into memory that was given back: see registers_safely() */
	bool reads;            /* fi_read() is there, and can be relied on */
	bool by_tcp;           /* its addresses have TCP ports, at which a kernel answers */
	bool reads_pieces;     /* and fi_readmsg() of two pieces at once */
	uint64_t mr_key;       /* the last that we chose, where the core does not */
	void (*close)(struct core *core);
};

/*
 * Open `wanted` (as VICINAL_NET says; NULL: the first of a fixed order that can be opened) on
 * `interface` (NULL: the first that is not a loopback). Returns 0, -ENODEV if there is none, or
 * another negative errno; both with a text.
 */
int core_open(struct core **core, const char *wanted, const char *interface, struct region_error *error);
void core_close(struct core *core);

/*
 * May `address` be handed to the core as one? It may be a stranger's: the core believes what the
 * first bytes say of its kind, and so of its length.
 */
static inline bool core_accepts(const struct core *core, const struct core_name *address)
{
	uint32_t format = core->info->addr_format;
	bool has_family = format == FI_SOCKADDR || format == FI_SOCKADDR_IN || format == FI_SOCKADDR_IN6;

	return address->provider == core->name.provider && address->length == core->name.length &&
	       (!has_family || memcmp(address->bytes, core->name.bytes, sizeof(sa_family_t)) == 0);
}

/* A number for a provider's name, which goes with addresses. */
uint16_t core_provider_number(const char *name);

#endif
