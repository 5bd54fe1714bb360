/* SPDX-License-Identifier: BSD-3-Clause */
/* pmix_nodes.c - tells the PMIx server of a step the nodes of its tasks: see pmix_nodes.h. */
#include "pmix_nodes.h"

#ifdef HAVE_PMIX

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pmix_server.h>

#define LIBRARY "libpmix.so.2"
#define NUMBER_MAX 11U
#define PARTS 4U

typedef __typeof__(&PMIx_server_register_nspace) register_function;

/* The description of one node or task. */
struct entry {
	pmix_info_t parts[PARTS];
	pmix_data_array_t array;
};

static pmix_value_t *value_of(pmix_info_t *info, const char *key, pmix_data_type_t type)
{
	(void)snprintf(info->key, sizeof(info->key), "%s", key);
	info->value.type = type;
	return &info->value;
}

static void describe_node(struct entry *entry, char *name, char *peers, uint32_t size)
{
	value_of(&entry->parts[0], PMIX_HOSTNAME, PMIX_STRING)->data.string = name;
	value_of(&entry->parts[1], PMIX_LOCAL_PEERS, PMIX_STRING)->data.string = peers;
	value_of(&entry->parts[2], PMIX_LOCAL_SIZE, PMIX_UINT32)->data.uint32 = size;
	entry->array = (pmix_data_array_t){.type = PMIX_INFO, .size = 3, .array = entry->parts};
}

static void describe_task(struct entry *entry, char *node, uint32_t rank, uint16_t number)
{
	value_of(&entry->parts[0], PMIX_RANK, PMIX_PROC_RANK)->data.rank = rank;
	value_of(&entry->parts[1], PMIX_LOCAL_RANK, PMIX_UINT16)->data.uint16 = number;
	value_of(&entry->parts[2], PMIX_NODE_RANK, PMIX_UINT16)->data.uint16 = number;
	value_of(&entry->parts[3], PMIX_HOSTNAME, PMIX_STRING)->data.string = node;
	entry->array = (pmix_data_array_t){.type = PMIX_INFO, .size = 4, .array = entry->parts};
}

/* How many tasks from the first on are in the same node, and the list of their ranks. */
static uint32_t list_peers(const struct pmix_task *tasks, uint32_t count, char *peers, size_t *used)
{
	uint32_t size = 0;

	while (size < count && strcmp(tasks[size].node, tasks[0].node) == 0) {
		*used += (size_t)snprintf(peers + *used, NUMBER_MAX + 1, "%s%u", size > 0 ? "," : "",
					  (unsigned)tasks[size].rank);
		size++;
	}
	*used += 1;
	return size;
}

static size_t describe(const struct pmix_task *tasks, uint32_t count, struct entry *entries, char *peers)
{
	size_t used = 0;
	size_t entry = 0;

	for (uint32_t first = 0; first < count;) {
		char *own = peers + used;
		/* PMIx's structures are not const, but PMIx does not change this string. */
		char *name = (char *)(uintptr_t)tasks[first].node;
		uint32_t size = list_peers(&tasks[first], count - first, peers, &used);

		describe_node(&entries[entry++], name, own, size);
		for (uint32_t i = 0; i < size; i++)
			describe_task(&entries[entry++], name, tasks[first + i].rank, (uint16_t)i);
		first += size;
	}
	return entry;
}

static int tell(register_function registers, const char *space, const struct pmix_task *tasks, uint32_t count)
{
	/* At most one node for each task. */
	struct entry *entries = calloc((size_t)count * 2, sizeof(*entries));
	pmix_info_t *all = calloc((size_t)count * 2, sizeof(*all));
	char *peers = calloc(count, NUMBER_MAX + 1);
	pmix_nspace_t name = {0};
	int status = PMIX_ERR_NOMEM;

	if (entries != NULL && all != NULL && peers != NULL) {
		size_t found = describe(tasks, count, entries, peers);

		for (size_t i = 0; i < found; i++) {
			/* The description of a node begins with its name. */
			bool is_node = strcmp(entries[i].parts[0].key, PMIX_HOSTNAME) == 0;

			value_of(&all[i], is_node ? PMIX_NODE_INFO_ARRAY : PMIX_PROC_INFO_ARRAY,
				 PMIX_DATA_ARRAY)
				->data.darray = &entries[i].array;
		}
		(void)snprintf(name, sizeof(name), "%s", space);
		/* Without a callback function, the call is synchronous. */
		status = registers(name, (int)count, all, found, NULL, NULL);
	}
	free(peers);
	free(all);
	free(entries);
	/* The library may be loaded without a server: PMIX_ERR_INIT. */
	return status == PMIX_SUCCESS || status == PMIX_OPERATION_SUCCEEDED || status == PMIX_ERR_INIT ? 0
												       : -1;
}

bool pmix_nodes_known(void)
{
	return true;
}

int pmix_nodes_tell(const char *space, const struct pmix_task *tasks, uint32_t count)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_NOLOAD);
	register_function registers = NULL;
	int result = 0;

	if (library == NULL)
		return 0;
	void *found = dlsym(library, "PMIx_server_register_nspace");

	memcpy(&registers, &found, sizeof(registers));
	if (registers != NULL && count > 0)
		result = tell(registers, space, tasks, count);
	(void)dlclose(library);
	return result;
}

#else

bool pmix_nodes_known(void)
{
	return false;
}

int pmix_nodes_tell(const char *space, const struct pmix_task *tasks, uint32_t count)
{
	(void)space;
	(void)tasks;
	(void)count;
	return 0;
}

#endif
