/* SPDX-License-Identifier: BSD-3-Clause */
/* library.c - finds the MPI library behind this one and its functions. */
#include "collectives/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "preload/next_library.h"

struct mpi_library mpi;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#define FUNCTION_NAME(name) "PMPI_" #name,
static const char *const names[FUNCTION_COUNT] = {
	CALLED_FUNCTIONS(FUNCTION_NAME) REPLACED_FUNCTIONS(FUNCTION_NAME) LARGE_FUNCTIONS(FUNCTION_NAME)
		CALLED_FOR_WINDOWS(FUNCTION_NAME) WINDOW_FUNCTIONS(FUNCTION_NAME)
			LARGE_WINDOW_FUNCTIONS(FUNCTION_NAME) OPTIONAL_FOR_WINDOWS(FUNCTION_NAME)};

static void keep(mpi_function *function, const void *symbol)
{
	memcpy(function, &symbol, sizeof(symbol));
}

/*
 * A profiling tool behind this library has MPI functions of its own, and calls PMPI functions, which are this
 * library's. In an MPI library without a tool, both names are one function, or both are in one library.
 */
static void look_up_tool(int index, void *library, const void *real)
{
	Dl_info tool;
	Dl_info own;
	const void *symbol = dlsym(library, names[index] + 1);

	if (symbol != NULL && symbol != real && dladdr(symbol, &tool) != 0 && dladdr(real, &own) != 0 &&
	    tool.dli_fbase != own.dli_fbase)
		keep(&mpi.tools[index], symbol);
}

/* The functions of MPICH's interface and of the standard one have the same names, so the file's name decides.
 */
static enum abi detect(void *library)
{
	if (mpi_symbol(library, "ompi_mpi_comm_world") != 0)
		return ABI_OPEN_MPI;
	Dl_info found;
	const void *symbol = dlsym(library, names[FUNCTION_Comm_rank]);
	if (symbol == NULL || dladdr(symbol, &found) == 0 || found.dli_fname == NULL)
		return ABI_UNKNOWN;
	return strstr(found.dli_fname, "libmpi_abi") != NULL ? ABI_STANDARD : ABI_MPICH;
}

static void look_up(void)
{
	void *library = next_library(names[FUNCTION_Comm_rank]);

	if (library == NULL) {
		(void)fprintf(stderr,
			      "vicinal: error: libvicinal-mpi.so finds no MPI library behind it: remove "
			      "it from LD_PRELOAD, or set VICINAL_COLLECTIVES=off\n");
		abort();
	}
	mpi.library = library;
	mpi.abi = detect(library);
	for (int i = 0; i < FUNCTION_COUNT; i++) {
		const void *symbol = dlsym(library, names[i]);
		if (symbol == NULL)
			continue;
		keep(&mpi.functions[i], symbol);
		look_up_tool(i, library, symbol);
	}
	switch (mpi.abi) {
	case ABI_MPICH:
		mpi.in_place = (const void *)-1;
		mpi.comm_self = 0x44000001;
		mpi.comm_null = 0x04000000;
		mpi.info_null = 0x1c000000;
		mpi.byte = 0x4c00010d;
		mpi.error_other = 15;
		break;
	case ABI_STANDARD:
		mpi.in_place = (const void *)1;
		mpi.comm_self = 0x102;
		mpi.comm_null = 0x100;
		mpi.info_null = 0x130;
		mpi.byte = 0x247;
		mpi.error_other = 16;
		break;
	default:
		mpi.in_place = (const void *)1;
		mpi.comm_self = mpi_symbol(library, "ompi_mpi_comm_self");
		mpi.comm_null = mpi_symbol(library, "ompi_mpi_comm_null");
		mpi.info_null = mpi_symbol(library, "ompi_mpi_info_null");
		mpi.byte = mpi_symbol(library, "ompi_mpi_byte");
		mpi.error_other = 16;
		break;
	}
	operators_look_up(library);
	atomic_store_explicit(&mpi.known, true, memory_order_release);
}

void mpi_look_up_once(void)
{
	(void)pthread_once(&once, look_up);
}

mpi_function mpi_first(int index)
{
	static mpi_function first[FUNCTION_COUNT]; /* threads that look up at once store the same */

	if (first[index] == NULL)
		keep(&first[index], dlsym(RTLD_DEFAULT, names[index]));
	return first[index];
}

bool mpi_is_usable(void)
{
	for (int i = 0; i <= FUNCTION_Finalize; i++)
		if (mpi.functions[i] == NULL)
			return false;
	return mpi.abi != ABI_UNKNOWN;
}
