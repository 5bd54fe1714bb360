/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * network_fetch.c - reading a peer's memory through the core: large messages and long one-sided
 * operations, directly into the destination buffer. The owner exposes the memory for the duration
 * of the read.
 */
#include <rdma/fi_rma.h>

#include "transport/network_transport.h"

bool network_reads(const struct peer *peer)
{
	return peer->beyond != NULL && !peer->beyond->network->lost && peer->beyond->network->core->reads;
}

bool network_expose(struct peer *peer, void *buffer, size_t length, struct network_grant *grant)
{
	struct network *network = peer->beyond->network;
	struct core *core = network->core;
	struct fid_mr *mr = NULL;

	if (network->lost || !core->reads ||
	    fi_mr_reg(core->domain, buffer, length, FI_REMOTE_READ, 0, ++core->mr_key, 0, &mr, NULL) != 0)
		return false;
	network->grants++;
	grant->mr = mr;
	grant->network = network;
	grant->key = fi_mr_key(mr);
	grant->address = (core->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0 ? (uintptr_t)buffer : 0;
	return true;
}

void network_revoke(struct network_grant *grant)
{
	if (grant->mr == NULL)
		return;
	grant->network->grants--;
	if (!grant->network->lost)
		(void)fi_close(&grant->mr->fid);
	grant->mr = NULL;
}

/*
 * The processor's string copy goes byte by byte if the destination begins up to 31 bytes after the
 * source, in the low 12 bits of the addresses: 3 GB/s instead of 26 (AMD Zen 5). A kernel copies
 * tcp's answer, a header of 16 bytes and then the peer's buffer, to the beginning of a page. So a
 * buffer that also begins at a page hits that case. The read therefore requests the bytes after the
 * first line first, and the first line last: docs/decisions/0010
 */
#define FIRST_LINE 64U
#define TURNED_MIN 4096U

static ssize_t read_turned(const struct network *network, fi_addr_t from, char *to, size_t length,
			   uint64_t address, uint64_t key, void *operation)
{
	const struct iovec local[] = {{to + FIRST_LINE, length - FIRST_LINE}, {to, FIRST_LINE}};
	const struct fi_rma_iov remote[] = {{address + FIRST_LINE, length - FIRST_LINE, key},
					    {address, FIRST_LINE, key}};

	return fi_readmsg(network->core->endpoint,
			  &(struct fi_msg_rma){
				  .msg_iov = local,
				  .iov_count = 2,
				  .addr = from,
				  .rma_iov = remote,
				  .rma_iov_count = 2,
				  .context = operation,
			  },
			  FI_COMPLETION);
}

/*
 * A peer that does not answer holds at most as many of the shared fetches as it leaves free. Each
 * peer also has one of its own.
 */
static struct fetch *take_fetch(struct network_peer *from)
{
	struct network *network = from->network;
	struct fetch *fetch = NULL;

	if (from->fetching < NETWORK_FETCHES - network->fetches_taken) {
		fetch = network->free_fetches;
		if (fetch != NULL)
			network->free_fetches = fetch->next;
		else
			fetch = &network->fetches[network->fetches_used++];
		network->fetches_taken++;
	} else if (!from->own_fetch_used) {
		fetch = &from->own_fetch;
		from->own_fetch_used = true;
	} else {
		return NULL;
	}
	from->fetching++;
	fetch->from = from;
	return fetch;
}

static void give_fetch(struct fetch *fetch)
{
	struct network *network = fetch->from->network;

	fetch->from->fetching--;
	if (fetch == &fetch->from->own_fetch) {
		fetch->from->own_fetch_used = false;
		return;
	}
	fetch->next = network->free_fetches;
	network->free_fetches = fetch;
	network->fetches_taken--;
}

int network_fetch(struct peer *peer, const struct network_grant *grant, uint64_t offset, void *to,
		  size_t length, void *cookie)
{
	struct network_peer *from = peer->beyond;
	struct network *network = from->network;

	if (network->lost || peer->state == PEER_FAILED)
		return -ECONNABORTED;
	if (!network->core->reads)
		return -EOPNOTSUPP;
	if (!network_make_reachable(from))
		return network_may_reach(from) ? -EHOSTUNREACH : -EAGAIN;
	struct fetch *fetch = take_fetch(from);
	if (fetch == NULL)
		return -EAGAIN;
	fetch->operation.use = CORE_FETCHES;
	fetch->stream = from->stream;
	fetch->cookie = cookie;
	fetch->length = length;
	ssize_t result = 0;
	if (network->core->reads_pieces && length >= TURNED_MIN)
		result = read_turned(network, from->address, to, length, grant->address + offset, grant->key,
				     fetch);
	else
		result = fi_read(network->core->endpoint, to, length, NULL, from->address,
				 grant->address + offset, grant->key, fetch);
	if (result != 0) {
		give_fetch(fetch);
		return (int)result;
	}
	network_stay_busy(network);
	return 0;
}

void network_fetched(struct network *network, struct fetch *fetch, int error)
{
	struct transport *transport = network->transport;
	void *cookie = fetch->cookie;
	size_t length = fetch->length;

	/* After a failover, the read has failed anyway, and the exposed memory may be gone. */
	if (error != 0 && fetch->stream == fetch->from->stream)
		network_fail(fetch->from, error);
	give_fetch(fetch);
	transport->user->fetched(transport->context, cookie, length, error);
}
