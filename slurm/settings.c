/* SPDX-License-Identifier: BSD-3-Clause */
/* settings.c - the plugin's arguments, and the file of variables: see settings.h. */
#include "settings.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "request.h"

#define MAX_SIZE_DEFAULT (UINT64_C(4) << 30)
/*
 * No service uses this port, and only root can bind it: packages for a job that has ended on a host
 * reach no process there.
 */
#define NETWORK_PORT_DEFAULT 330
#define DIGITS_MAX 5U

/* The value in an argument NAME=VALUE, or NULL. */
static const char *value_of(const char *argument, const char *name)
{
	size_t length = strlen(name);

	return strncmp(argument, name, length) == 0 && argument[length] == '=' ? argument + length + 1 : NULL;
}

/* Returns 0, or -1 if the text is neither a port nor `host`. */
static int read_network(const char *text, uint16_t *port)
{
	size_t digits = strspn(text, "0123456789");
	unsigned long number = 0;

	if (strcmp(text, "host") != 0) {
		number = strtoul(text, NULL, 10);
		if (digits == 0 || digits > DIGITS_MAX || text[digits] != '\0' || number == 0 ||
		    number > UINT16_MAX)
			return -1;
	}
	*port = (uint16_t)number;
	return 0;
}

int settings_read(int count, char **arguments, struct settings *settings, const char **wrong)
{
	static const char *const names[] = {"command", "directory", "variables", "python"};
	const char **const targets[] = {&settings->command, &settings->directory, &settings->variables,
					&settings->python};
	const size_t paths = sizeof(names) / sizeof(names[0]);
	const size_t needed = paths - 1;

	*settings = (struct settings){.max_size = MAX_SIZE_DEFAULT, .network_port = NETWORK_PORT_DEFAULT};
	for (int i = 0; i < count; i++) {
		const char *size = value_of(arguments[i], "max_size");
		const char *vfs = value_of(arguments[i], "vfs");
		const char *network = value_of(arguments[i], "network");
		const char *vlans = value_of(arguments[i], "vlans");
		int good = size != NULL && size_read(size, &settings->max_size) == 0;

		if (network != NULL)
			good = read_network(network, &settings->network_port) == 0;

		if (vlans != NULL && vlans[0] != '\0' && vlans[strspn(vlans, "0123456789-")] == '\0') {
			settings->vlans = vlans;
			good = 1;
		}
		if (vfs != NULL && vfs[0] != '\0') {
			settings->vfs = vfs;
			good = 1;
		}
		for (size_t j = 0; j < paths && !good; j++) {
			const char *path = value_of(arguments[i], names[j]);

			good = path != NULL && path[0] == '/';
			if (good)
				*targets[j] = path;
		}
		*wrong = arguments[i];
		if (!good)
			return -1;
	}
	for (size_t j = 0; j < needed; j++) {
		*wrong = names[j];
		if (*targets[j] == NULL)
			return -1;
	}
	return 0;
}

int settings_next_variable(FILE *file, char *line, int length, const char **name, const char **value)
{
	while (fgets(line, length, file) != NULL) {
		char *end = strchr(line, '\n');

		if (end == NULL) /* longer than any line that `vicinal slurm install` writes */
			return -1;
		*end = '\0';
		if (line[0] == '#' || line[0] == '\0')
			continue;
		char *equals = strchr(line, '=');

		if (equals == NULL || equals == line)
			return -1;
		*equals = '\0';
		*name = line;
		*value = equals + 1;
		return 1;
	}
	return 0;
}
