/* SPDX-License-Identifier: BSD-3-Clause */
/* av.c - address vectors: an fi_addr_t is an index in both kinds, table and map. */
#include "api/provider.h"
#include "api/refused.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define AV_REMOVED UINT32_MAX
#define TEXT_FORMAT TEXT_PREFIX "%016" PRIx64 "%016" PRIx64 "/%u/%u/%016" PRIx64
#define TEXT_PREFIX "vicinal://"

int address_to_text(const struct address *address, char *text, size_t length)
{
	return snprintf(text, length, TEXT_FORMAT, address->region[0], address->region[1],
			(unsigned)address->slot, address->epoch, address->nonce);
}

/*
 * A number of at most `digits` digits, followed by `end`. Moves `text` past both.
 * strtoull alone would take signs, spaces and 0x.
 */
static bool read_number(const char **text, int base, size_t digits, char end, uint64_t *value)
{
	const char *allowed = base == 16 ? "0123456789abcdef" : "0123456789";
	size_t length = strspn(*text, allowed);
	char copy[24] = "";

	if (length == 0 || length > digits || (*text)[length] != end)
		return false;
	memcpy(copy, *text, length);
	*value = strtoull(copy, NULL, base);
	*text += length + (end != '\0');
	return true;
}

bool address_from_text(const char *text, struct address *address)
{
	uint64_t slot = 0;
	uint64_t epoch = 0;
	char first_half[17] = "";

	*address = (struct address){.version = ADDRESS_FORMAT_VERSION};
	if (strncmp(text, TEXT_PREFIX, strlen(TEXT_PREFIX)) != 0)
		return false;
	text += strlen(TEXT_PREFIX);
	/* The two halves of the region's id stand together. */
	if (strnlen(text, 32) < 32)
		return false;
	memcpy(first_half, text, 16);
	const char *half = first_half;
	text += 16;
	if (!read_number(&half, 16, 16, '\0', &address->region[0]) ||
	    !read_number(&text, 16, 16, '/', &address->region[1]) || !read_number(&text, 10, 4, '/', &slot) ||
	    !read_number(&text, 10, 10, '/', &epoch) || !read_number(&text, 16, 16, '\0', &address->nonce) ||
	    slot >= REGION_MEMBERS_MAX || epoch > UINT32_MAX)
		return false;
	address->slot = (uint16_t)slot;
	address->epoch = (uint32_t)epoch;
	return true;
}

fi_addr_t av_name_sender(const struct av *av, uint64_t source)
{
	uint32_t slot = (uint32_t)source;

	if (av == NULL || source == COMPLETION_NO_SOURCE || slot >= av->domain->region->members)
		return FI_ADDR_NOTAVAIL;
	/* Who has the slot now may have been inserted before one who had it once. SIZE_MAX is nobody. */
	for (size_t i = av->by_slot[slot] + 1; i-- > 0;)
		if (av->entries[i].slot == slot && av->entries[i].epoch == (uint32_t)(source >> 32))
			return i;
	return FI_ADDR_NOTAVAIL;
}

struct correspondent *endpoint_resolve_slowly(struct endpoint *endpoint, fi_addr_t address)
{
	struct av *av = endpoint->av;

	if (av == NULL || address >= av->count || av->entries[address].slot >= av->domain->region->members)
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
	struct peer *peer = path_meet(endpoint->messenger->path, entry->slot, entry->epoch, entry->nonce);
	if (peer == NULL) {
		/* It may have left: what it sent before stays reachable as long as nobody took its slot. */
		peer = endpoint->messenger->path->peers[entry->slot];
		if (peer == NULL || peer->epoch != entry->epoch)
			return NULL;
	}
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

/* Only an address in our own region can be reached. Whether its member is there shows at first use. */
static bool reachable(const struct av *av, const struct address *address)
{
	const struct region *region = av->domain->region;

	return address->version == ADDRESS_FORMAT_VERSION && address->slot < region->members &&
	       address->region[0] == region->id[0] && address->region[1] == region->id[1];
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
		bool good = reachable(av, &address);
		/* A table counts every address, so that a caller can number them itself. */
		struct av_entry *entry = &av->entries[av->count];
		*entry = (struct av_entry){address.nonce, address.epoch, good ? address.slot : AV_REMOVED};
		if (good) {
			av->by_slot[address.slot] = av->count;
			inserted++;
		}
		if (indices != NULL)
			indices[i] = good ? av->count : FI_ADDR_NOTAVAIL;
		if (errors != NULL)
			errors[i] = good ? 0 : FI_EHOSTUNREACH;
		if (!good && av->events)
			report_unreachable(av, i, context);
		if (!good)
			provider_warn(FI_LOG_AV, "an address is of another region, or of another provider\n");
		av->count++;
	}
	domain_unlock(av->domain);
	return av->events ? report_insertion(av, (uint64_t)inserted, context) : inserted;
}

/* Of a slot there may be several: when the newest entry goes, the one before is the newest. */
static void remove_entry(struct av *av, size_t index)
{
	struct av_entry *entry = &av->entries[index];
	uint32_t slot = entry->slot;

	entry->slot = AV_REMOVED;
	if (slot == AV_REMOVED || av->by_slot[slot] != index)
		return;
	av->by_slot[slot] = SIZE_MAX;
	for (size_t i = index; i-- > 0;)
		if (av->entries[i].slot == slot) {
			av->by_slot[slot] = i;
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
			remove_entry(av, indices[i]);
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
	if (index < av->count && av->entries[index].slot != AV_REMOVED) {
		const struct av_entry *entry = &av->entries[index];
		struct address address = {
			.version = ADDRESS_FORMAT_VERSION,
			.slot = (uint16_t)entry->slot,
			.epoch = entry->epoch,
			.nonce = entry->nonce,
			.region = {av->domain->region->id[0], av->domain->region->id[1]},
		};
		memcpy(buffer, &address, *length < sizeof(address) ? *length : sizeof(address));
		*length = sizeof(address);
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
	free(av->by_slot);
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
	av->by_slot = calloc(domain->region->members, sizeof(*av->by_slot));
	if (av->by_slot == NULL) {
		free(av);
		return -FI_ENOMEM;
	}
	for (uint32_t slot = 0; slot < domain->region->members; slot++)
		av->by_slot[slot] = SIZE_MAX;
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
