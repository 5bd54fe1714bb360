/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * operations.h - ids that peers receive and send back, and that are checked then.
 *
 * An id is generation << 32 | index. A peer may send any number. A number that was never given out, or whose
 * operation has ended, finds nothing.
 */
#ifndef VICINAL_PROTO_OPERATIONS_H
#define VICINAL_PROTO_OPERATIONS_H

#include <stdint.h>

struct operation_entry {
	void *operation; /* NULL while free */
	uint32_t generation;
	uint32_t next_free;
};

struct operation_table {
	struct operation_entry *entries;
	uint32_t capacity;
	uint32_t first_free; /* index, or capacity if none */
};

#define OPERATION_NO_ID UINT64_MAX

void operations_open(struct operation_table *table);
void operations_close(struct operation_table *table);

/* Returns an id, or OPERATION_NO_ID without memory. */
uint64_t operations_add(struct operation_table *table, void *operation);
void operations_remove(struct operation_table *table, uint64_t id);

static inline void *operations_find(const struct operation_table *table, uint64_t id)
{
	uint32_t index = (uint32_t)id;

	if (index >= table->capacity || table->entries[index].generation != (uint32_t)(id >> 32))
		return 0;
	return table->entries[index].operation;
}

#endif
