/* SPDX-License-Identifier: BSD-3-Clause */
/* network_directory.c - a table of nonces, and the identities in the order in which they came. */
#include "transport/network_directory.h"

#include <stdlib.h>
#include <sys/random.h>

#define CAPACITY_LEAST 16U

void directory_close(struct directory *directory)
{
	free(directory->identities);
	free(directory->table);
	*directory = (struct directory){0};
}

static uint32_t first_place(const struct directory *directory, uint64_t nonce)
{
	uint64_t mixed = (nonce ^ directory->seed) * UINT64_C(0x9e3779b97f4a7c15);

	return (uint32_t)(mixed >> 32) & (2 * directory->capacity - 1);
}

/* Where the nonce is in the table, or would be. */
static uint32_t locate(const struct directory *directory, uint64_t nonce)
{
	uint32_t mask = 2 * directory->capacity - 1;
	uint32_t at = first_place(directory, nonce);

	while (directory->table[at] != 0 && directory->identities[directory->table[at] - 1].nonce != nonce)
		at = (at + 1) & mask;
	return at;
}

uint32_t directory_find(const struct directory *directory, uint64_t nonce)
{
	if (directory->count == 0)
		return DIRECTORY_NONE;
	return directory->table[locate(directory, nonce)] - 1; /* 0 is none: it wraps to DIRECTORY_NONE */
}

static bool grow(struct directory *directory)
{
	uint32_t capacity = directory->capacity == 0 ? CAPACITY_LEAST : 2 * directory->capacity;
	uint32_t *table = calloc(2 * (size_t)capacity, sizeof(*table));
	struct identity *identities =
		table != NULL ? realloc(directory->identities, capacity * sizeof(*identities)) : NULL;

	if (identities == NULL) {
		free(table);
		return false;
	}
	if (directory->capacity == 0 &&
	    getrandom(&directory->seed, sizeof(directory->seed), 0) != (ssize_t)sizeof(directory->seed))
		directory->seed = (uintptr_t)table;
	free(directory->table);
	directory->table = table;
	directory->identities = identities;
	directory->capacity = capacity;
	for (uint32_t place = 0; place < directory->count; place++)
		table[locate(directory, identities[place].nonce)] = place + 1;
	return true;
}

static uint32_t find_or_add(struct directory *directory, uint64_t nonce, const struct core_name *name)
{
	uint32_t place = directory_find(directory, nonce);

	if (place != DIRECTORY_NONE)
		return core_name_is(&directory->identities[place].name, name) ? place : DIRECTORY_NONE;
	if (directory->count == NETWORK_PEERS_MOST || name->length > CORE_NAME_MOST)
		return DIRECTORY_NONE;
	if (directory->count == directory->capacity && !grow(directory))
		return DIRECTORY_NONE;
	place = directory->count++;
	directory->identities[place] = (struct identity){.nonce = nonce, .name = *name};
	directory->strangers++;
	directory->table[locate(directory, nonce)] = place + 1;
	return place;
}

uint32_t directory_admit(struct directory *directory, uint64_t nonce, const struct core_name *name)
{
	if (directory->strangers == NETWORK_STRANGERS_MOST &&
	    directory_find(directory, nonce) == DIRECTORY_NONE)
		return DIRECTORY_NONE;
	return find_or_add(directory, nonce, name);
}

uint32_t directory_add(struct directory *directory, uint64_t nonce, const struct core_name *name)
{
	uint32_t place = find_or_add(directory, nonce, name);

	if (place != DIRECTORY_NONE && !directory->identities[place].told) {
		directory->identities[place].told = true;
		directory->strangers--;
	}
	return place;
}
