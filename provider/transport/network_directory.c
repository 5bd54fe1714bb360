/* SPDX-License-Identifier: BSD-3-Clause */
/* network_directory.c - a hash table of nonces, and the identities in order of arrival. */
#include "transport/network_directory.h"

#include <stdlib.h>
#include <sys/random.h>

#define CAPACITY_MIN 16U

void directory_close(struct directory *directory)
{
	free(directory->identities);
	free(directory->table);
	*directory = (struct directory){0};
}

static uint32_t first_index(const struct directory *directory, uint64_t nonce)
{
	uint64_t mixed = (nonce ^ directory->seed) * UINT64_C(0x9e3779b97f4a7c15);

	return (uint32_t)(mixed >> 32) & (2 * directory->capacity - 1);
}

/* The position of the nonce in the table, or of the free entry for it. */
static uint32_t locate(const struct directory *directory, uint64_t nonce)
{
	uint32_t mask = 2 * directory->capacity - 1;
	uint32_t at = first_index(directory, nonce);

	while (directory->table[at] != 0 && directory->identities[directory->table[at] - 1].nonce != nonce)
		at = (at + 1) & mask;
	return at;
}

uint32_t directory_find(const struct directory *directory, uint64_t nonce)
{
	if (directory->count == 0)
		return DIRECTORY_NONE;
	return directory->table[locate(directory, nonce)] -
	       1; /* an entry of 0 means none: 0 - 1 wraps to DIRECTORY_NONE */
}

static bool grow(struct directory *directory)
{
	uint32_t capacity = directory->capacity == 0 ? CAPACITY_MIN : 2 * directory->capacity;
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
	for (uint32_t index = 0; index < directory->count; index++)
		table[locate(directory, identities[index].nonce)] = index + 1;
	return true;
}

static uint32_t find_or_add(struct directory *directory, uint64_t nonce, const struct core_name *name)
{
	uint32_t index = directory_find(directory, nonce);

	if (index != DIRECTORY_NONE)
		return core_name_is(&directory->identities[index].name, name) ? index : DIRECTORY_NONE;
	if (directory->count == NETWORK_PEERS_MAX || name->length > CORE_NAME_MAX)
		return DIRECTORY_NONE;
	if (directory->count == directory->capacity && !grow(directory))
		return DIRECTORY_NONE;
	index = directory->count++;
	directory->identities[index] = (struct identity){.nonce = nonce, .name = *name};
	directory->strangers++;
	directory->table[locate(directory, nonce)] = index + 1;
	return index;
}

uint32_t directory_admit(struct directory *directory, uint64_t nonce, const struct core_name *name)
{
	if (directory->strangers == NETWORK_STRANGERS_MAX &&
	    directory_find(directory, nonce) == DIRECTORY_NONE)
		return DIRECTORY_NONE;
	return find_or_add(directory, nonce, name);
}

uint32_t directory_add(struct directory *directory, uint64_t nonce, const struct core_name *name)
{
	uint32_t index = find_or_add(directory, nonce, name);

	if (index != DIRECTORY_NONE && !directory->identities[index].told) {
		directory->identities[index].told = true;
		directory->strangers--;
	}
	return index;
}
