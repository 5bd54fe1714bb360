/* SPDX-License-Identifier: BSD-3-Clause */
/* operations.c - allocates and frees ids. */
#include "proto/operations.h"

#include <stddef.h>
#include <stdlib.h>

void operations_open(struct operation_table *table)
{
	table->entries = NULL;
	table->capacity = 0;
	table->first_free = 0;
}

void operations_close(struct operation_table *table)
{
	free(table->entries);
	table->entries = NULL;
	table->capacity = 0;
	table->first_free = 0;
}

uint64_t operations_add(struct operation_table *table, void *operation)
{
	if (table->first_free == table->capacity) {
		uint32_t capacity = table->capacity == 0 ? 64 : table->capacity * 2;
		struct operation_entry *entries = realloc(table->entries, capacity * sizeof(*entries));
		if (entries == NULL)
			return OPERATION_NO_ID;
		for (uint32_t index = table->capacity; index < capacity; index++)
			entries[index] = (struct operation_entry){.generation = 1, .next_free = index + 1};
		table->entries = entries;
		table->capacity = capacity;
	}
	uint32_t index = table->first_free;
	struct operation_entry *entry = &table->entries[index];
	table->first_free = entry->next_free;
	entry->operation = operation;
	return (uint64_t)entry->generation << 32 | index;
}

void operations_remove(struct operation_table *table, uint64_t id)
{
	uint32_t index = (uint32_t)id;
	struct operation_entry *entry = &table->entries[index];

	entry->operation = NULL;
	entry->generation++;
	entry->next_free = table->first_free;
	table->first_free = index;
}
