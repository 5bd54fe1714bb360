/* SPDX-License-Identifier: BSD-3-Clause */
/* av.c - address vectors. An fi_addr_t is an index, in FI_AV_TABLE and in FI_AV_MAP. */
#include "api/provider.h"
#include "api/refused.h"

#include <stdlib.h>

_Static_assert(AV_REMOVED == RESOLVE_NONE, "a removed entry resolves to no peer");

/* The peer that `endpoint` met under this number and epoch; NULL if there is none. */
static const struct peer *peer_met(const struct endpoint *endpoint, uint32_t number, uint32_t epoch)
{
	const struct transport *transport =
		endpoint->messenger != NULL ? endpoint->messenger->transport : NULL;
	const struct peer *peer =
		transport != NULL && number < transport->peer_end ? transport->peers[number] : NULL;

	return peer != NULL && peer->source == number && peer->epoch == epoch ? peer : NULL;
}

/*
 * The peer at this entry's address was met under `number`. If no endpoint met the peer under the entry's
 * present number, the entry changes to `number`: what is known of the regions changed since the insertion.
 * Returns whether the entry changed.
 */
static bool follow(struct av *av, size_t index, uint32_t number, uint32_t epoch)
{
	const struct av_entry *entry = &av->table.entries[index];

	for (const struct endpoint *endpoint = av->domain->endpoints; endpoint != NULL;
	     endpoint = endpoint->next)
		if (peer_met(endpoint, entry->source, entry->epoch) != NULL)
			return false;
	if (!av_table_reach(&av->table, number))
		return false;
	av_table_unlink(&av->table, index);
	av_table_link(&av->table, index, number, epoch);
	return true;
}

static bool is_of_peer(const struct av *av, size_t index, uint64_t source)
{
	if (av->table.entries[index].source == AV_REMOVED)
		return false;
	for (const struct endpoint *endpoint = av->domain->endpoints; endpoint != NULL;
	     endpoint = endpoint->next) {
		const struct peer *peer = peer_met(endpoint, (uint32_t)source, (uint32_t)(source >> 32));
		if (peer != NULL &&
		    address_is_of(endpoint->messenger->transport, peer, &av->addresses[index]))
			return true;
	}
	return false;
}

/* No entry with the sender's address has the sender's number, or there is no such entry: see resolve.c. */
static __attribute__((noinline)) fi_addr_t name_by_address(struct av *av, uint64_t source)
{
	/* A sender that no entry names may send often: skip the search. */
	if (source == av->stranger && av->table.insertions == av->stranger_insertions)
		return FI_ADDR_NOTAVAIL;
	size_t newest = AV_NO_ENTRY;
	for (size_t i = 0; i < av->table.count; i++)
		if (is_of_peer(av, i, source) &&
		    (newest == AV_NO_ENTRY ||
		     av->table.entries[i].inserted > av->table.entries[newest].inserted))
			newest = i;
	if (newest != AV_NO_ENTRY) {
		(void)follow(av, newest, (uint32_t)source, (uint32_t)(source >> 32));
		return newest;
	}
	av->stranger = source;
	av->stranger_insertions = av->table.insertions;
	return FI_ADDR_NOTAVAIL;
}

fi_addr_t av_name_sender(struct av *av, uint64_t source)
{
	if (av == NULL || source == COMPLETION_NO_SOURCE)
		return FI_ADDR_NOTAVAIL;
	size_t index = av_table_find(&av->table, (uint32_t)source, (uint32_t)(source >> 32));
	if (index != AV_NO_ENTRY)
		return index;
	return name_by_address(av, source);
}

/*
 * The peer's number is one of the network. The peer may nevertheless be in a region, in a slot whose number
 * belongs to another peer.
 */
static struct peer *meet_beyond(struct transport *transport, const struct av_entry *entry,
				const struct address *address)
{
	for (uint32_t i = 0; i < transport->attachment_count && transport->peers[entry->source] == NULL;
	     i++) {
		struct attachment *attachment = &transport->attachments[i];
		const struct region *region = attachment->region;
		if (region->id[0] != address->region[0] || region->id[1] != address->region[1] ||
		    region->left || attachment->base == TRANSPORT_NO_BASE || address->slot >= region->members)
			continue;
		/* transport_meet() finds the same number. */
		(void)transport_meet(transport, attachment->base + address->slot, address->epoch,
				     address->nonce);
	}
	return network_meet(transport, entry->source);
}

struct msg_peer *endpoint_resolve_slowly(struct endpoint *endpoint, fi_addr_t address)
{
	struct av *av = endpoint->av;

	if (av == NULL || address >= av->table.count || av->table.entries[address].source == AV_REMOVED)
		return NULL;
	if (address >= endpoint->resolved_count) {
		size_t count = av->table.capacity;
		struct resolved *grown = realloc(endpoint->resolved, count * sizeof(*grown));
		if (grown == NULL)
			return NULL;
		memset(grown + endpoint->resolved_count, 0,
		       (count - endpoint->resolved_count) * sizeof(*grown));
		endpoint->resolved = grown;
		endpoint->resolved_count = count;
	}
	const struct av_entry *entry = &av->table.entries[address];
	const struct address *inserted = &av->addresses[address];
	struct member_core where = {
		.provider = inserted->core, .length = inserted->core_length, .flags = inserted->core_flags};
	struct transport *transport = endpoint->messenger->transport;
	bool beyond = entry->source >= transport->members;
	struct peer *peer = beyond ? meet_beyond(transport, entry, inserted)
				   : transport_meet(transport, entry->source, entry->epoch, inserted->nonce);
	if (peer == NULL && beyond)
		return NULL;
	memcpy(where.name, inserted->core_name, sizeof(where.name));
	if (peer == NULL) {
		/*
		 * The peer may have left. The messages that it sent before stay readable until a member
		 * claims its slot.
		 */
		uint32_t epoch = 0;
		peer = transport->peers[entry->source];
		uint32_t met = peer == NULL ? domain_met(av->domain, inserted, &epoch) : RESOLVE_NONE;
		if (met != RESOLVE_NONE && met != entry->source && follow(av, address, met, epoch))
			return endpoint_resolve_slowly(endpoint, address);
		if (peer == NULL)
			peer = transport_meet_without_region(transport, entry->source, entry->epoch,
							     inserted->nonce, &where);
		if (peer == NULL || peer->epoch != entry->epoch || peer->nonce != inserted->nonce)
			return NULL;
	}
	if (!beyond)
		transport_set_core_address(peer, &where);
	endpoint->resolved[address] = (struct resolved){(struct msg_peer *)(void *)peer, peer->epoch};
	return endpoint->resolved[address].peer;
}

static bool grow(struct av *av, size_t more)
{
	if (!av_table_grow(&av->table, more))
		return false;
	if (av->address_room == av->table.capacity)
		return true;
	struct address *addresses = realloc(av->addresses, av->table.capacity * sizeof(*addresses));
	if (addresses == NULL)
		return false;
	av->addresses = addresses;
	av->address_room = av->table.capacity;
	return true;
}

/* Unused bytes must be zero, so that each endpoint has one address. */
static bool is_well_formed(const struct address *address)
{
	if (address->core_length > CORE_NAME_MAX ||
	    (address->core_length == 0 && (address->core != 0 || address->core_flags != 0)))
		return false;
	for (uint8_t i = address->core_length; i < CORE_NAME_MAX; i++)
		if (address->core_name[i] != 0)
			return false;
	return true;
}

/* The number of the peer at an address. Returns AV_REMOVED, after a warning, if the peer is unreachable. */
static uint32_t source_of(struct av *av, const struct address *address, uint32_t *epoch)
{
	static atomic_bool said;

	*epoch = address->epoch;
	if (address->version != ADDRESS_FORMAT_VERSION) {
		provider_notice_once(&said,
				     "the address of a peer has format version %u, and this provider knows "
				     "version %u: install the same Vicinal for all ranks, and let all use it "
				     "(FI_PROVIDER=vicinal)",
				     (unsigned)address->version, ADDRESS_FORMAT_VERSION);
		return AV_REMOVED;
	}
	if (!is_well_formed(address)) {
		provider_warn(FI_LOG_AV, "an address is not valid: another provider made it\n");
		return AV_REMOVED;
	}
	uint32_t source = domain_resolve(av->domain, address, epoch);
	if (source == RESOLVE_NONE) {
		source = network_resolve(av->domain, address);
		*epoch = NETWORK_EPOCH;
	}
	return source != RESOLVE_NONE && av_table_reach(&av->table, source) ? source : AV_REMOVED;
}

/* Inserts one address at `index`. Returns false if the peer is unreachable. */
static bool insert_at(struct av *av, size_t index, const struct address *address)
{
	uint32_t epoch = 0;
	uint32_t source = source_of(av, address, &epoch);

	av->addresses[index] = *address;
	if (source == AV_REMOVED)
		return false;
	av_table_link(&av->table, index, source, epoch);
	return true;
}

/* The addresses are inserted and have indices, so a reader of the event may use them. */
static int report_insertion(struct av *av, uint64_t inserted, void *context)
{
	struct fi_eq_entry entry = {.fid = &av->fid.fid, .context = context, .data = inserted};

	return eq_add(av->eq, FI_AV_COMPLETE, &entry, sizeof(entry));
}

static void report_unreachable(struct av *av, uint64_t index, void *context)
{
	struct fi_eq_err_entry error = {
		.fid = &av->fid.fid,
		.context = context,
		.data = index,
		.err = FI_EHOSTUNREACH,
		.prov_errno = FI_EHOSTUNREACH,
	};

	if (eq_add_error(av->eq, &error) != 0)
		provider_warn(FI_LOG_AV, "an unreachable address is not reported: no memory is left\n");
}

static int av_insert(struct fid_av *fid, const void *addresses, size_t count, fi_addr_t *indices,
		     uint64_t flags, void *context)
{
	struct av *av = (struct av *)(void *)fid;
	const char *bytes = addresses;
	int *errors = (flags & FI_SYNC_ERR) != 0 && !av->events ? context : NULL;
	int inserted = 0;
	size_t failed = AV_NO_ENTRY; /* head of a list, linked by `older` */

	if ((flags & ~(FI_MORE | FI_SYNC_ERR)) != 0)
		return -FI_EBADFLAGS;
	if (av->events && av->eq == NULL)
		return -FI_ENOEQ;
	if (count > 0 && addresses == NULL)
		return -FI_EINVAL;
	domain_lock(av->domain);
	if (!grow(av, count)) {
		domain_unlock(av->domain);
		return -FI_ENOMEM;
	}
	for (size_t i = 0; i < count; i++) {
		struct address address;
		memcpy(&address, bytes + i * sizeof(address), sizeof(address));
		/* Without an array of indices, the caller numbers the addresses itself, in order. */
		size_t index = av_table_take(&av->table, indices == NULL);
		bool good = insert_at(av, index, &address);
		if (good) {
			inserted++;
		} else {
			av->table.entries[index].older = failed;
			failed = index;
		}
		if (indices != NULL)
			indices[i] = good ? index : FI_ADDR_NOTAVAIL;
		if (errors != NULL)
			errors[i] = good ? 0 : FI_EHOSTUNREACH;
		if (!good && av->events)
			report_unreachable(av, i, context);
	}
	/* Only now, because each address of this call takes an index: the caller may count them. */
	while (failed != AV_NO_ENTRY) {
		size_t index = failed;
		failed = av->table.entries[index].older;
		av_table_give(&av->table, index);
	}
	domain_unlock(av->domain);
	return av->events ? report_insertion(av, (uint64_t)inserted, context) : inserted;
}

static void remove_one(struct av *av, fi_addr_t index)
{
	/* An index that is removed twice may by then belong to another address. */
	if (av->table.entries[index].source == AV_REMOVED)
		return;
	av_table_unlink(&av->table, index);
	av_table_give(&av->table, index);
	for (struct endpoint *endpoint = av->domain->endpoints; endpoint != NULL; endpoint = endpoint->next)
		if (endpoint->av == av && index < endpoint->resolved_count)
			endpoint->resolved[index].peer = NULL;
}

static int av_remove(struct fid_av *fid, fi_addr_t *indices, size_t count, uint64_t flags)
{
	struct av *av = (struct av *)(void *)fid;
	int result = 0;

	(void)flags;
	domain_lock(av->domain);
	for (size_t i = 0; i < count; i++) {
		if (indices[i] < av->table.count)
			remove_one(av, indices[i]);
		else
			result = -FI_EINVAL;
	}
	domain_unlock(av->domain);
	return result;
}

static int av_lookup(struct fid_av *fid, fi_addr_t index, void *buffer, size_t *length)
{
	struct av *av = (struct av *)(void *)fid;
	int result = -FI_EINVAL;

	domain_lock(av->domain);
	if (index < av->table.count && av->table.entries[index].source != AV_REMOVED) {
		const struct address *address = &av->addresses[index];
		memcpy(buffer, address, *length < sizeof(*address) ? *length : sizeof(*address));
		*length = sizeof(*address);
		result = 0;
	}
	domain_unlock(av->domain);
	return result;
}

static const char *av_straddr(struct fid_av *fid, const void *bytes, char *text, size_t *length)
{
	struct address address;

	(void)fid;
	memcpy(&address, bytes, sizeof(address));
	*length = (size_t)address_to_text(&address, text, *length) + 1;
	return text;
}

static int av_close(struct fid *fid)
{
	struct av *av = (struct av *)(void *)fid;
	bool bound = false;

	domain_lock(av->domain);
	for (const struct endpoint *endpoint = av->domain->endpoints; endpoint != NULL;
	     endpoint = endpoint->next)
		bound = bound || endpoint->av == av;
	domain_unlock(av->domain);
	if (bound)
		return -FI_EBUSY;
	if (av->eq != NULL)
		atomic_fetch_sub(&av->eq->bound, 1);
	atomic_fetch_sub(&av->domain->objects, 1);
	av_table_close(&av->table);
	free(av->addresses);
	free(av);
	return 0;
}

static int av_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	struct av *av = (struct av *)(void *)fid;

	if (other->fclass != FI_CLASS_EQ || flags != 0 || av->eq != NULL)
		return -FI_EINVAL;
	av->eq = (struct eq *)(void *)other;
	atomic_fetch_add(&av->eq->bound, 1);
	return 0;
}

static struct fi_ops av_fid_operations = {
	.size = sizeof(struct fi_ops),
	.close = av_close,
	.bind = av_bind,
	.control = refuse_control,
	.ops_open = refuse_ops_open,
};

static struct fi_ops_av av_operations = {
	.size = sizeof(struct fi_ops_av),
	.insert = av_insert,
	.insertsvc = refuse_insertsvc,
	.insertsym = refuse_insertsym,
	.remove = av_remove,
	.lookup = av_lookup,
	.straddr = av_straddr,
};

int av_open(struct fid_domain *fid, struct fi_av_attr *attributes, struct fid_av **opened, void *context)
{
	static atomic_uint opened_so_far;
	struct domain *domain = (struct domain *)(void *)fid;

	/* Named shared vectors and receive contexts are not supported. */
	if (attributes != NULL &&
	    (attributes->name != NULL || (attributes->flags & FI_READ) != 0 || attributes->rx_ctx_bits != 0))
		return -FI_ENOSYS;
	struct av *av = calloc(1, sizeof(*av));
	if (av == NULL)
		return -FI_ENOMEM;
	av->domain = domain;
	av->number = atomic_fetch_add_explicit(&opened_so_far, 1, memory_order_relaxed);
	av->events = attributes != NULL && (attributes->flags & FI_EVENT) != 0;
	atomic_fetch_add(&domain->objects, 1);
	av->fid.fid.fclass = FI_CLASS_AV;
	av->fid.fid.context = context;
	av->fid.fid.ops = &av_fid_operations;
	av->fid.ops = &av_operations;
	if (attributes != NULL && attributes->type == FI_AV_UNSPEC)
		attributes->type = FI_AV_TABLE;
	*opened = &av->fid;
	return 0;
}
