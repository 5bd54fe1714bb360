/* SPDX-License-Identifier: BSD-3-Clause */
/* av_table.c - see av_table.h. */
#include "api/av_table.h"

#include <stdlib.h>

#define CAPACITY_MIN 64U
#define SOURCES_MIN 64U

#ifdef AV_STEPS_COUNTED
uint64_t av_steps;
#endif

void av_table_close(struct av_table *table)
{
	free(table->entries);
	free(table->newest);
	*table = (struct av_table){0};
}

bool av_table_grow(struct av_table *table, size_t more)
{
	size_t capacity = table->capacity == 0 ? CAPACITY_MIN : table->capacity;

	if (more > SIZE_MAX / 2 / sizeof(*table->entries) - table->count)
		return false;
	while (capacity < table->count + more)
		capacity *= 2;
	if (capacity == table->capacity)
		return true;
	struct av_entry *entries = realloc(table->entries, capacity * sizeof(*entries));
	if (entries == NULL)
		return false;
	table->entries = entries;
	table->capacity = capacity;
	return true;
}

bool av_table_reach(struct av_table *table, uint32_t source)
{
	uint64_t sources = table->sources == 0 ? SOURCES_MIN : table->sources;

	if (source == AV_REMOVED)
		return false;
	while (sources <= source)
		sources *= 2;
	if (sources > AV_REMOVED)
		sources = AV_REMOVED;
	if (sources == table->sources)
		return true;
	size_t *newest = realloc(table->newest, sources * sizeof(*newest));
	if (newest == NULL)
		return false;
	table->newest = newest;
	for (; table->sources < sources; table->sources++)
		newest[table->sources] = AV_NO_ENTRY;
	return true;
}

size_t av_table_take(struct av_table *table, bool in_order)
{
	size_t index = table->count;

	AV_STEP();
	if (table->free != 0 && !in_order) {
		index = table->free - 1;
		table->free = table->entries[index].older;
	} else {
		table->count++;
	}
	table->entries[index] = (struct av_entry){.source = AV_REMOVED, .inserted = ++table->insertions};
	return index;
}

void av_table_give(struct av_table *table, size_t index)
{
	AV_STEP();
	table->entries[index].older = table->free;
	table->free = index + 1;
}

/* An entry that moves to another source keeps its position in the order of insertion. */
void av_table_link(struct av_table *table, size_t index, uint32_t source, uint32_t epoch)
{
	struct av_entry *entry = &table->entries[index];
	size_t newer = AV_NO_ENTRY;
	size_t older = table->newest[source];

	AV_STEP();
	while (older != AV_NO_ENTRY && table->entries[older].inserted > entry->inserted) {
		AV_STEP();
		newer = older;
		older = table->entries[older].older;
	}
	entry->source = source;
	entry->epoch = epoch;
	entry->newer = newer;
	entry->older = older;
	if (newer == AV_NO_ENTRY)
		table->newest[source] = index;
	else
		table->entries[newer].older = index;
	if (older != AV_NO_ENTRY)
		table->entries[older].newer = index;
}

void av_table_unlink(struct av_table *table, size_t index)
{
	struct av_entry *entry = &table->entries[index];

	AV_STEP();
	if (entry->source == AV_REMOVED)
		return;
	if (entry->newer == AV_NO_ENTRY)
		table->newest[entry->source] = entry->older;
	else
		table->entries[entry->newer].older = entry->older;
	if (entry->older != AV_NO_ENTRY)
		table->entries[entry->older].newer = entry->newer;
	entry->source = AV_REMOVED;
}

size_t av_table_find(const struct av_table *table, uint32_t source, uint32_t epoch)
{
	size_t index = source < table->sources ? table->newest[source] : AV_NO_ENTRY;

	/*
	 * The present owner of the slot may have been inserted before a former owner, so the newest entry
	 * need not match.
	 */
	while (index != AV_NO_ENTRY && table->entries[index].epoch != epoch) {
		AV_STEP();
		index = table->entries[index].older;
	}
	return index;
}
