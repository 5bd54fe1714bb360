/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * registration.h - memory that peers may access, found by key. Each domain has one table.
 *
 * Peers may send any key and address. A key that was not given out finds nothing. An address becomes an
 * offset that is checked against the registration's length, in arithmetic that cannot wrap.
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
	uint64_t address;  /* the peers' address of the first byte: its virtual address, or 0 */
	uint64_t access;   /* FI_REMOTE_READ and FI_REMOTE_WRITE */
	const void *owner; /* the endpoint that gives access; NULL: all endpoints of the domain */
	struct completion_counter *counter; /* counts writes to the memory, or NULL */
	uint32_t grants; /* the core provider's operations on the memory, which must stay meanwhile */
	bool enabled;
};

/*
 * A hash table with open addressing. `capacity` is a power of two, and at least half of the entries are free.
 */
struct registration_table {
	struct registration **entries; /* NULL if free */
	uint32_t capacity;
	uint32_t count;
};

void registrations_open(struct registration_table *table);
void registrations_close(struct registration_table *table);

/* Returns 0, -FI_ENOKEY if the key exists already, or -ENOMEM. */
int registrations_add(struct registration_table *table, struct registration *registration);
void registrations_remove(struct registration_table *table, const struct registration *registration);
/* Closes access to registrations that are bound to this endpoint. */
void registrations_disown(struct registration_table *table, const void *owner);

/* The registration at an index from 0 to `capacity` - 1, or NULL. */
static inline struct registration *registrations_at(const struct registration_table *table, uint32_t index)
{
	return table->entries[index];
}

struct registration *registrations_find(const struct registration_table *table, uint64_t key);

/*
 * Finds `length` bytes at `address` under `key`, for `access` through the endpoint `owner`. Returns 0 and the
 * bytes, or a positive errno for the peer: FI_EKEYREJECTED if there is no such key, FI_EACCES if the
 * registration does not contain all bytes or does not allow the access.
 */
int registrations_reach(const struct registration_table *table, const void *owner, uint64_t key,
			uint64_t address, uint64_t length, uint64_t access,
			struct registration **registration, unsigned char **bytes);

#endif
