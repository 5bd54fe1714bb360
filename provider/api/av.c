/* SPDX-License-Identifier: BSD-3-Clause */
/* av.c - address vectors: an fi_addr_t is an index in both kinds, table and map. */
#include "api/provider.h"
#include "api/refused.h"

#include <stdlib.h>

#define AV_REMOVED PLACE_NONE

static bool reach_source(struct av *av, uint32_t source);
static void forget_source(struct av *av, size_t index);

/* Whom `endpoint` has met by this number, in this epoch. */
static const struct peer *peer_met(const struct endpoint *endpoint, uint32_t number, uint32_t epoch)
{
	const struct path *path = endpoint->messenger != NULL ? endpoint->messenger->path : NULL;
	const struct peer *peer = path != NULL && number < path->peer_end ? path->peers[number] : NULL;

	return peer != NULL && peer->source == number && peer->epoch == epoch ? peer : NULL;
}

/*
 * Who is at the address of this entry was met, by this number. If nobody has met it where the entry has it,
 * the entry follows: what was known of the regions has changed since it was made. Returns whether it did.
 */
static bool follow(struct av *av, size_t index, uint32_t number, uint32_t epoch)
{
	struct av_entry *entry = &av->entries[index];

	for (const struct endpoint *endpoint = av->domain->endpoints; endpoint != NULL;
	     endpoint = endpoint->next)
		if (peer_met(endpoint, entry->source, entry->epoch) != NULL)
			return false;
	if (!reach_source(av, number))
		return false;
	forget_source(av, index);
	entry->source = number;
	entry->epoch = epoch;
	if (av->by_source[number] == SIZE_MAX || av->by_source[number] < index)
		av->by_source[number] = index;
	return true;
}

static bool is_of_peer(const struct av *av, const struct av_entry *entry, uint64_t source)
{
	if (entry->source == AV_REMOVED)
		return false;
	for (const struct endpoint *endpoint = av->domain->endpoints; endpoint != NULL;
	     endpoint = endpoint->next) {
		const struct peer *peer = peer_met(endpoint, (uint32_t)source, (uint32_t)(source >> 32));
		if (peer != NULL && address_is_of(endpoint->messenger->path, peer, &entry->address))
			return true;
	}
	return false;
}

/* The sender has another number than the entry with its address, or there is no such entry: see place.c. */
static __attribute__((noinline)) fi_addr_t name_by_address(struct av *av, uint64_t source)
{
	/* Who is in no entry may send often. */
	if (source == av->stranger && av->count == av->stranger_count)
		return FI_ADDR_NOTAVAIL;
	for (size_t i = av->count; i-- > 0;)
		if (is_of_peer(av, &av->entries[i], source)) {
			(void)follow(av, i, (uint32_t)source, (uint32_t)(source >> 32));
			return i;
		}
	av->stranger = source;
	av->stranger_count = av->count;
	return FI_ADDR_NOTAVAIL;
}

fi_addr_t av_name_sender(struct av *av, uint64_t source)
{
	uint32_t number = (uint32_t)source;

	if (av == NULL || source == COMPLETION_NO_SOURCE)
		return FI_ADDR_NOTAVAIL;
	/* Who has the slot now may have been inserted before one who had it once. SIZE_MAX is nobody. */
	for (size_t i = number < av->sources ? av->by_source[number] + 1 : 0; i-- > 0;)
		if (av->entries[i].source == number && av->entries[i].epoch == (uint32_t)(source >> 32))
			return i;
	return name_by_address(av, source);
}

/* By a number of the network's; it may be in a region all the same, in a slot whose number is another's. */
static struct peer *meet_beyond(struct path *path, const struct av_entry *entry)
{
	const struct address *address = &entry->address;

	for (uint32_t i = 0; i < path->port_count && path->peers[entry->source] == NULL; i++) {
		struct port *port = &path->ports[i];
		const struct region *region = port->region;
		if (region->id[0] != address->region[0] || region->id[1] != address->region[1] ||
		    region->left || port->base == PATH_NO_BASE || address->slot >= region->members)
			continue;
		/* It comes to the same number. */
		(void)path_meet(path, port->base + address->slot, address->epoch, address->nonce);
	}
	return network_meet(path, entry->source);
}

struct correspondent *endpoint_resolve_slowly(struct endpoint *endpoint, fi_addr_t address)
{
	struct av *av = endpoint->av;

	if (av == NULL || address >= av->count || av->entries[address].source == AV_REMOVED)
		return NULL;
	if (address >= endpoint->resolved_count) {
		size_t count = av->capacity;
		struct resolved *grown = realloc(endpoint->resolved, count * sizeof(*grown));
		if (grown == NULL)
			return NULL;
		memset(grown + endpoint->resolved_count, 0,
		       (count - endpoint->resolved_count) * sizeof(*grown));
		endpoint->resolved = grown;
		endpoint->resolved_count = count;
	}
	const struct av_entry *entry = &av->entries[address];
	struct member_core where = {.provider = entry->address.core,
				    .length = entry->address.core_length,
				    .flags = entry->address.core_flags};
	struct path *path = endpoint->messenger->path;
	bool beyond = entry->source >= path->members;
	struct peer *peer = beyond ? meet_beyond(path, entry)
				   : path_meet(path, entry->source, entry->epoch, entry->address.nonce);
	if (peer == NULL && beyond)
		return NULL;
	memcpy(where.name, entry->address.core_name, sizeof(where.name));
	if (peer == NULL) {
		/* It may have left: what it sent before stays reachable as long as nobody took its slot. */
		uint32_t epoch = 0;
		peer = path->peers[entry->source];
		uint32_t met = peer == NULL ? domain_met(av->domain, &entry->address, &epoch) : PLACE_NONE;
		if (met != PLACE_NONE && met != entry->source && follow(av, address, met, epoch))
			return endpoint_resolve_slowly(endpoint, address);
		if (peer == NULL)
			peer = path_meet_without_region(path, entry->source, entry->epoch,
							entry->address.nonce, &where);
		if (peer == NULL || peer->epoch != entry->epoch || peer->nonce != entry->address.nonce)
			return NULL;
	}
	if (!beyond)
		path_tell_place(peer, &where);
	endpoint->resolved[address] = (struct resolved){(struct correspondent *)(void *)peer, peer->epoch};
	return endpoint->resolved[address].peer;
}

static int grow(struct av *av, size_t count)
{
	size_t capacity = av->capacity == 0 ? 64 : av->capacity;

	while (capacity < count)
		capacity *= 2;
	if (capacity == av->capacity)
		return 0;
	struct av_entry *entries = realloc(av->entries, capacity * sizeof(*entries));
	if (entries == NULL)
		return -FI_ENOMEM;
	av->entries = entries;
	av->capacity = capacity;
	return 0;
}

/* Room in `by_source` for this one. */
static bool reach_source(struct av *av, uint32_t source)
{
	uint32_t sources = av->sources == 0 ? av->domain->members : av->sources;

	while (sources <= source)
		sources *= 2;
	if (sources == av->sources)
		return true;
	size_t *grown = realloc(av->by_source, sources * sizeof(*grown));
	if (grown == NULL)
		return false;
	av->by_source = grown;
	for (; av->sources < sources; av->sources++)
		grown[av->sources] = SIZE_MAX;
	return true;
}

/* Nothing stands where nothing has a meaning, so that there is one address for one place. */
static bool is_well_formed(const struct address *address)
{
	if (address->core_length > CORE_NAME_MOST ||
	    (address->core_length == 0 && (address->core != 0 || address->core_flags != 0)))
		return false;
	for (uint8_t i = address->core_length; i < CORE_NAME_MOST; i++)
		if (address->core_name[i] != 0)
			return false;
	return true;
}

/* The entry of an address. Its source is AV_REMOVED if it cannot be reached, and then that was said. */
static struct av_entry make_entry(struct av *av, const struct address *address)
{
	struct av_entry entry = {*address, address->epoch, AV_REMOVED};

	if (address->version != ADDRESS_FORMAT_VERSION || !is_well_formed(address)) {
		provider_warn(FI_LOG_AV,
			      "an address is of another provider, or another version of this one\n");
		return entry;
	}
	entry.source = domain_place(av->domain, address, &entry.epoch);
	if (entry.source != PLACE_NONE)
		return entry;
	uint32_t source = network_place(av->domain, address);
	if (source == PLACE_NONE || !reach_source(av, source))
		return entry;
	entry.epoch = NETWORK_EPOCH;
	entry.source = source;
	return entry;
}

/* The addresses are in, and each has its number; whoever reads the event may use them. */
static int report_insertion(struct av *av, uint64_t inserted, void *context)
{
	struct fi_eq_entry entry = {.fid = &av->fid.fid, .context = context, .data = inserted};

	return eq_add(av->eq, FI_AV_COMPLETE, &entry, sizeof(entry));
}

static void report_unreachable(struct av *av, uint64_t place, void *context)
{
	struct fi_eq_err_entry error = {
		.fid = &av->fid.fid,
		.context = context,
		.data = place,
		.err = FI_EHOSTUNREACH,
		.prov_errno = FI_EHOSTUNREACH,
	};

	if (eq_add_error(av->eq, &error) != 0)
		provider_warn(FI_LOG_AV, "no memory is left to report an address that is not reachable\n");
}

static int av_insert(struct fid_av *fid, const void *addresses, size_t count, fi_addr_t *indices,
		     uint64_t flags, void *context)
{
	struct av *av = (struct av *)(void *)fid;
	const char *bytes = addresses;
	int *errors = (flags & FI_SYNC_ERR) != 0 && !av->events ? context : NULL;
	int inserted = 0;

	if ((flags & ~(FI_MORE | FI_SYNC_ERR)) != 0)
		return -FI_EBADFLAGS;
	if (av->events && av->eq == NULL)
		return -FI_ENOEQ;
	if (count > 0 && addresses == NULL)
		return -FI_EINVAL;
	domain_lock(av->domain);
	if (grow(av, av->count + count) != 0) {
		domain_unlock(av->domain);
		return -FI_ENOMEM;
	}
	for (size_t i = 0; i < count; i++) {
		struct address address;
		memcpy(&address, bytes + i * sizeof(address), sizeof(address));
		/* A table counts every address, so that a caller can number them itself. */
		struct av_entry *entry = &av->entries[av->count];
		*entry = make_entry(av, &address);
		bool good = entry->source != AV_REMOVED;
		if (good) {
			av->by_source[entry->source] = av->count;
			inserted++;
		}
		if (indices != NULL)
			indices[i] = good ? av->count : FI_ADDR_NOTAVAIL;
		if (errors != NULL)
			errors[i] = good ? 0 : FI_EHOSTUNREACH;
		if (!good && av->events)
			report_unreachable(av, i, context);
		av->count++;
	}
	domain_unlock(av->domain);
	return av->events ? report_insertion(av, (uint64_t)inserted, context) : inserted;
}

/* Of a peer there may be several: when the newest entry goes, the one before is the newest. */
static void forget_source(struct av *av, size_t index)
{
	struct av_entry *entry = &av->entries[index];
	uint32_t source = entry->source;

	entry->source = AV_REMOVED;
	if (source == AV_REMOVED || av->by_source[source] != index)
		return;
	av->by_source[source] = SIZE_MAX;
	for (size_t i = index; i-- > 0;)
		if (av->entries[i].source == source) {
			av->by_source[source] = i;
			return;
		}
}

static int av_remove(struct fid_av *fid, fi_addr_t *indices, size_t count, uint64_t flags)
{
	struct av *av = (struct av *)(void *)fid;
	int result = 0;

	(void)flags;
	domain_lock(av->domain);
	for (size_t i = 0; i < count; i++) {
		if (indices[i] < av->count)
			forget_source(av, indices[i]);
		else
			result = -FI_EINVAL;
	}
	for (struct endpoint *endpoint = av->domain->endpoints; endpoint != NULL; endpoint = endpoint->next)
		for (size_t i = 0; endpoint->av == av && i < count; i++)
			if (indices[i] < endpoint->resolved_count)
				endpoint->resolved[indices[i]].peer = NULL;
	domain_unlock(av->domain);
	return result;
}

static int av_lookup(struct fid_av *fid, fi_addr_t index, void *buffer, size_t *length)
{
	struct av *av = (struct av *)(void *)fid;
	int result = -FI_EINVAL;

	domain_lock(av->domain);
	if (index < av->count && av->entries[index].source != AV_REMOVED) {
		const struct address *address = &av->entries[index].address;
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
	free(av->entries);
	free(av->by_source);
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

	/* Sharing by name and receive contexts are not offered. */
	if (attributes != NULL &&
	    (attributes->name != NULL || (attributes->flags & FI_READ) != 0 || attributes->rx_ctx_bits != 0))
		return -FI_ENOSYS;
	struct av *av = calloc(1, sizeof(*av));
	if (av == NULL)
		return -FI_ENOMEM;
	av->domain = domain;
	if (!reach_source(av, 0)) {
		free(av);
		return -FI_ENOMEM;
	}
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
