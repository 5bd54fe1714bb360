/* SPDX-License-Identifier: BSD-3-Clause */
/* pmix.c - the PMIx server of a step: see pmix.h. */
#include "pmix.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define NAME "PMIX_SERVER_URI"
#define ADDRESS "tcp4://127.0.0.1:"

/* The port in a variable, and its position; 0 if the variable contains none. */
static uint16_t find_port(const char *variable, const char **number, char **rest)
{
	const char *value = strchr(variable, '=');
	const char *address = value != NULL ? strstr(value, ADDRESS) : NULL;

	if (strncmp(variable, NAME, sizeof(NAME) - 1) != 0 || address == NULL)
		return 0;
	*number = address + sizeof(ADDRESS) - 1;
	unsigned long port = strtoul(*number, rest, 10);

	return port <= UINT16_MAX ? (uint16_t)port : 0;
}

static bool is_listening(int opened, uint16_t port)
{
	struct sockaddr_in address = {0};
	socklen_t size = sizeof(address);
	int listens = 0;
	socklen_t length = sizeof(listens);

	return getsockopt(opened, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens != 0 &&
	       getsockname(opened, (struct sockaddr *)&address, &size) == 0 && size == sizeof(address) &&
	       address.sin_family == AF_INET && address.sin_addr.s_addr == htonl(INADDR_LOOPBACK) &&
	       address.sin_port == htons(port);
}

static bool has_listening(uint16_t port)
{
	DIR *directory = opendir("/proc/self/fd");
	const struct dirent *entry = NULL;
	bool found = false;

	while (directory != NULL && !found && (entry = readdir(directory)) != NULL) {
		if (entry->d_name[0] != '.')
			found = is_listening((int)strtol(entry->d_name, NULL, 10), port);
	}
	if (directory != NULL)
		(void)closedir(directory);
	return found;
}

uint16_t pmix_server_port(const char *const *variables)
{
	const char *number = NULL;
	char *rest = NULL;

	for (; *variables != NULL; variables++) {
		uint16_t port = find_port(*variables, &number, &rest);

		if (port != 0 && has_listening(port))
			return port;
	}
	return 0;
}

bool pmix_move(const char *variable, uint16_t port, uint16_t other, struct pmix_setting *setting)
{
	const char *number = NULL;
	char *rest = NULL;

	if (find_port(variable, &number, &rest) != port || strlen(variable) >= PMIX_SETTING_MAX)
		return false;
	const char *value = strchr(variable, '=') + 1;

	(void)snprintf(setting->name, sizeof(setting->name), "%.*s", (int)(value - 1 - variable), variable);
	int size = snprintf(setting->value, sizeof(setting->value), "%.*s%u%s", (int)(number - value), value,
			    (unsigned)other, rest);

	return size > 0 && (size_t)size < sizeof(setting->value);
}
