/* SPDX-License-Identifier: BSD-3-Clause */
/* node_list.c - the nodes of a job on this host: see node_list.h. */
#include "node_list.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORD_LINE_MAX (PATH_MAX + 64)
#define NODES_MAX 1024U

static int read_whole_process(const char *text, struct process *process)
{
	const char *end = process_read(text, process);

	return end != NULL && *end == '\0' ? 0 : -1;
}

static int read_node(const char *text, struct node *node)
{
	static const char container[] = "container ";
	const char *end = strchr(text, ' ');

	if (end == NULL || end == text || end - text >= (ptrdiff_t)sizeof(node->name))
		return -1;
	memcpy(node->name, text, (size_t)(end - text));
	node->name[end - text] = '\0';
	node->is_container = strcmp(end + 1, "exec") != 0;
	if (!node->is_container)
		return 0;
	if (strncmp(end + 1, container, strlen(container)) != 0)
		return -1;
	return read_whole_process(end + 1 + strlen(container), &node->process);
}

static int read_region(const char *text, struct node_list *list)
{
	const char *end = strchr(text, ' ');
	char *rest = NULL;

	if (end == NULL || end - text >= (ptrdiff_t)sizeof(list->region))
		return -1;
	memcpy(list->region, text, (size_t)(end - text));
	list->region[end - text] = '\0';
	list->members = (uint32_t)strtoul(end + 1, &rest, 10);
	return *rest == '\0' ? 0 : -1;
}

static int read_vfs(const char *text, char words[NODE_VF_WORDS][NODE_VFS_MOST_BYTES])
{
	for (size_t i = 0; i < NODE_VF_WORDS; i++) {
		const size_t length = strcspn(text, " ");

		if (length == 0 || length >= NODE_VFS_MOST_BYTES ||
		    (text[length] == '\0') != (i == NODE_VF_WORDS - 1))
			return -1;
		memcpy(words[i], text, length);
		words[i][length] = '\0';
		text += length + 1;
	}
	return 0;
}

static int read_interface(const char *text, struct node_list *list)
{
	const size_t length = strlen(text);

	if (length == 0 || length >= sizeof(list->interface))
		return -1;
	memcpy(list->interface, text, length + 1);
	return 0;
}

/* Read all lines, and keep node number `wanted`. */
static int read_lines(FILE *file, uint32_t wanted, struct node_list *list)
{
	char line[RECORD_LINE_MAX];
	struct node node;
	char words[NODE_VF_WORDS][NODE_VFS_MOST_BYTES];

	*list = (struct node_list){0};
	while (fgets(line, sizeof(line), file) != NULL) {
		size_t length = strcspn(line, "\n");
		int result = -1;

		if (line[length] == '\0' ||
		    list->count == NODES_MAX) /* the line is too long, or there are too many nodes */
			return -1;
		line[length] = '\0';
		if (strncmp(line, "region ", 7) == 0)
			result = read_region(line + 7, list);
		else if (strncmp(line, "identity ", 9) == 0)
			result = read_whole_process(line + 9, &list->identity);
		else if (strncmp(line, "interface ", 10) == 0)
			result = read_interface(line + 10, list);
		else if (strncmp(line, "vfs ", 4) == 0) {
			result = read_vfs(line + 4, words);
			if (result == 0 && list->count == wanted + 1)
				memcpy(list->vfs, words, sizeof(words));
		} else if (strncmp(line, "node ", 5) == 0) {
			node = (struct node){0};
			result = read_node(line + 5, &node);
			if (list->count++ == wanted)
				list->node = node;
		}
		if (result != 0)
			return -1;
	}
	return list->count > 0 ? 0 : -1;
}

int node_list_read(int supervisor, const char *directory, uint32_t task, uint32_t tasks,
		   struct node_list *list)
{
	char path[PATH_MAX];
	struct stat status;
	int length = snprintf(path, sizeof(path), "root%s/nodes", directory);
	int opened = -1;
	int result = -1;

	if (length > 0 && length < PATH_MAX)
		opened = openat(supervisor, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (opened < 0)
		return -1;
	FILE *file = fstat(opened, &status) == 0 && S_ISREG(status.st_mode) ? fdopen(opened, "r") : NULL;

	if (file == NULL) {
		(void)close(opened);
		return -1;
	}
	result = read_lines(file, 0, list);
	if (result == 0 && tasks > 0 && task < tasks) {
		rewind(file);
		result = read_lines(file, (uint32_t)((uint64_t)task * list->count / tasks), list);
	}
	(void)fclose(file);
	return result;
}
