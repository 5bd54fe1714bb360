/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * count - both ranks increment one word of the shared memory at the same time, as often as the
 * argument says. Rank 0 prints the result. If it is less than twice the argument, atomic
 * instructions of one guest are not atomic for the other.
 */
#include <fcntl.h>
#include <glob.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

static int is_ivshmem(const char *directory)
{
	char path[512], vendor[16] = "", device[16] = "";
	const char *names[] = {"vendor", "device"};
	char *texts[] = {vendor, device};

	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
		FILE *file = fopen(path, "r");
		if (file == NULL || fgets(texts[i], 16, file) == NULL)
			return 0;
		fclose(file);
	}
	return strncmp(vendor, "0x1af4", 6) == 0 && strncmp(device, "0x1110", 6) == 0;
}

/* The last cache line of the shared memory, which no region uses. */
static _Atomic unsigned long *last_word(void)
{
	glob_t devices;

	glob("/sys/bus/pci/devices/*", 0, NULL, &devices);
	for (size_t i = 0; i < devices.gl_pathc; i++) {
		char path[512];
		struct stat status;

		if (!is_ivshmem(devices.gl_pathv[i]))
			continue;
		snprintf(path, sizeof(path), "%s/resource2", devices.gl_pathv[i]);
		int fd = open(path, O_RDWR);
		if (fd < 0 || fstat(fd, &status) != 0)
			break;
		char *base = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (base == MAP_FAILED)
			break;
		return (_Atomic unsigned long *)(void *)(base + status.st_size - 64);
	}
	fprintf(stderr, "count: error: the shared memory cannot be mapped\n");
	exit(1);
}

int main(int argc, char **argv)
{
	int rank;
	long times = argc > 1 ? atol(argv[1]) : 1;
	_Atomic unsigned long *word = last_word();

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (rank == 0)
		atomic_store(word, 0);
	MPI_Barrier(MPI_COMM_WORLD);
	for (long i = 0; i < times; i++)
		atomic_fetch_add(word, 1);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("%lu\n", atomic_load(word));
	MPI_Finalize();
	return 0;
}
