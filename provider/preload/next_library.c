/* SPDX-License-Identifier: BSD-3-Clause */
/* next_library.c - see next_library.h. Each preloaded library is linked with a copy of its own. */
#include "preload/next_library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool is_ours(void *address)
{
	Dl_info found;
	Dl_info own;
	void *(*self)(const char *) = next_library;
	void *here = NULL;

	/* ISO C has no conversion from a function's address to an object's. */
	memcpy(&here, &self, sizeof(here));
	return dladdr(address, &found) == 0 || dladdr(here, &own) == 0 || found.dli_fbase == own.dli_fbase;
}

struct library {
	struct library *next;
	char name[];
};

/* Called for each library, while no library can be opened. So this keeps the names for later. */
static int keep_name(struct dl_phdr_info *loaded, size_t size, void *libraries)
{
	size_t length = strlen(loaded->dlpi_name) + 1;
	struct library *library = length > 1 ? malloc(sizeof(*library) + length) : NULL;

	(void)size;
	if (library == NULL)
		return 0;
	memcpy(library->name, loaded->dlpi_name, length);
	library->next = *(struct library **)libraries;
	*(struct library **)libraries = library;
	return 0;
}

/* The library, if it or its dependencies have an MPI other than the calling library; else NULL. */
static void *open_behind(const char *library, const char *name)
{
	void *opened = dlopen(library, RTLD_NOLOAD | RTLD_LAZY);
	void *address = opened != NULL ? dlsym(opened, name) : NULL;

	if (address != NULL && !is_ours(address))
		return opened;
	if (opened != NULL)
		(void)dlclose(opened);
	return NULL;
}

/* An interpreter such as Python loads libmpi only for its module: then RTLD_NEXT does not find it. */
void *next_library(const char *name)
{
	struct library *libraries = NULL;
	void *found = NULL;

	if (dlsym(RTLD_NEXT, name) != NULL)
		return RTLD_NEXT;
	(void)dl_iterate_phdr(keep_name, &libraries);
	while (libraries != NULL) {
		struct library *library = libraries;
		libraries = library->next;
		if (found == NULL)
			found = open_behind(library->name, name);
		free(library);
	}
	return found;
}
