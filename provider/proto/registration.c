/* SPDX-License-Identifier: BSD-3-Clause */
/* registration.c - the hash table of keys. */
#include "proto/registration.h"

#include <errno.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>

#define CAPACITY_FIRST 64U

void registrations_open(struct registration_table *table)
{
	*table = (struct registration_table){0};
}

void registrations_close(struct registration_table *table)
{
	free(table->entries);
	*table = (struct registration_table){0};
}

/* The first index to search. Keys often are 0, 1, 2 or addresses, so mix all bits. */
static uint32_t hash_of(const struct registration_table *table, uint64_t key)
{
	key = (key ^ key >> 32) * UINT64_C(0x9e3779b97f4a7c15);
	return (uint32_t)(key >> 32) & (table->capacity - 1);
}

static void insert(const struct registration_table *table, struct registration *registration)
{
	uint32_t index = hash_of(table, registration->key);

	while (table->entries[index] != NULL)
		index = (index + 1) & (table->capacity - 1);
	table->entries[index] = registration;
}

static int grow(struct registration_table *table)
{
	struct registration_table grown = {
		.capacity = table->capacity == 0 ? CAPACITY_FIRST : table->capacity * 2,
		.count = table->count,
	};

	if (grown.capacity != 0)
		grown.entries = calloc(grown.capacity, sizeof(struct registration *));
	if (grown.entries == NULL)
		return -ENOMEM;
	for (uint32_t index = 0; index < table->capacity; index++)
		if (table->entries[index] != NULL)
			insert(&grown, table->entries[index]);
	free(table->entries);
	*table = grown;
	return 0;
}

int registrations_add(struct registration_table *table, struct registration *registration)
{
	if (registrations_find(table, registration->key) != NULL)
		return -FI_ENOKEY;
	if (table->count * 2 >= table->capacity && grow(table) != 0)
		return -ENOMEM;
	insert(table, registration);
	table->count++;
	return 0;
}

void registrations_remove(struct registration_table *table, const struct registration *registration)
{
	uint32_t mask = table->capacity - 1;
	uint32_t hole = hash_of(table, registration->key);

	while (table->entries[hole] != registration)
		hole = (hole + 1) & mask;
	/* Moves entries up that a search would no longer find behind the hole. */
	for (uint32_t index = (hole + 1) & mask; table->entries[index] != NULL; index = (index + 1) & mask) {
		uint32_t first = hash_of(table, table->entries[index]->key);
		if (((index - first) & mask) < ((index - hole) & mask))
			continue;
		table->entries[hole] = table->entries[index];
		hole = index;
	}
	table->entries[hole] = NULL;
	table->count--;
}

void registrations_disown(struct registration_table *table, const void *owner)
{
	for (uint32_t index = 0; index < table->capacity; index++)
		if (table->entries[index] != NULL && table->entries[index]->owner == owner)
			/*
			 * No endpoint matches `table`. A later endpoint may have the closed endpoint's
			 * address.
			 */
			table->entries[index]->owner = table;
}

struct registration *registrations_find(const struct registration_table *table, uint64_t key)
{
	if (table->count == 0)
		return NULL;
	for (uint32_t index = hash_of(table, key); table->entries[index] != NULL;
	     index = (index + 1) & (table->capacity - 1))
		if (table->entries[index]->key == key)
			return table->entries[index];
	return NULL;
}

int registrations_reach(const struct registration_table *table, const void *owner, uint64_t key,
			uint64_t address, uint64_t length, uint64_t access,
			struct registration **registration, unsigned char **bytes)
{
	struct registration *found = table != NULL ? registrations_find(table, key) : NULL;

	if (found == NULL || !found->enabled || (found->owner != NULL && found->owner != owner))
		return FI_EKEYREJECTED;
	/* Wraps to a huge offset if `address` is too small, so one comparison is enough. */
	uint64_t offset = address - found->address;
	if (offset > found->length || length > found->length - offset || (access & ~found->access) != 0)
		return FI_EACCES;
	*registration = found;
	/* Computed as an integer, because the whole address space may be registered, beginning with NULL. */
	*bytes = (unsigned char *)((uintptr_t)found->base + offset);
	return 0;
}
