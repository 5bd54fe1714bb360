/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * registration.h - memory that peers may reach, found by its key. One table a domain.
 *
 * Keys and addresses come from peers, which may name any: a key that was not given out
 * finds nothing, and an address is an offset that is checked against the registration's
 * length, in arithmetic that cannot wrap.
 */
#ifndef VICINAL_PROTO_REGISTRATION_H
#define VICINAL_PROTO_REGISTRATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/completion.h"

struct registration {
	uint64_t key;
	unsigned char *base;
	uint64_t length;
	uint64_t address;  /* what peers call the first byte: its virtual address, or 0 */
	uint64_t access;   /* FI_REMOTE_READ and FI_REMOTE_WRITE */
	const void *owner; /* the endpoint that it is reached through; NULL: any of the domain's */
	struct completion_counter *counter; /* counts what was written to it, or NULL */
	uint32_t grants; /* operations whose bytes the core moves to or from it: it must stay as it is */
	bool enabled;
};

/* A hash table with open addressing; `capacity` is a power of two, and half of it stays free. */
struct registration_table {
	struct registration **entries; /* NULL where there is none */
	uint32_t capacity;
	uint32_t count;
};

void registrations_open(struct registration_table *table);
void registrations_close(struct registration_table *table);

/* Returns 0, -FI_ENOKEY if the key is there already, or -ENOMEM. */
int registrations_add(struct registration_table *table, struct registration *registration);
void registrations_remove(struct registration_table *table, const struct registration *registration);
/* What was bound to this endpoint cannot be reached any more. */
void registrations_disown(struct registration_table *table, const void *owner);

/* Each registration, once, by calling with 0, 1, ... until this is `capacity`; NULL in between. */
static inline struct registration *registrations_at(const struct registration_table *table, uint32_t index)
{
	return table->entries[index];
}

struct registration *registrations_find(const struct registration_table *table, uint64_t key);

/*
 * `length` bytes at `address` under `key`, through the endpoint `owner`, for `access`.
 * Returns 0 and where they are, or a positive errno for the peer: FI_EKEYREJECTED if there is
 * no such key, FI_EACCES if it does not cover all of them or does not allow the access.
 */
int registrations_reach(const struct registration_table *table, const void *owner, uint64_t key,
			uint64_t address, uint64_t length, uint64_t access,
			struct registration **registration, unsigned char **bytes);

#endif
