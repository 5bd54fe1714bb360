/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * replay COUNT SEED [FILE...] - run a fuzz target on files, then on COUNT random inputs, with any compiler
 * and sanitizer. For inputs that fuzzers found, and for machines without a fuzzer.
 */
#include <stdio.h>
#include <stdlib.h>

#include "fuzz/fuzz_input.h"

#define INPUT_MAX 4096U

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path)
{
	static uint8_t data[1U << 20];
	FILE *file = fopen(path, "rb");

	if (file == NULL) {
		(void)fprintf(stderr, "replay: error: %s cannot be opened\n", path);
		return 1;
	}
	size_t size = fread(data, 1, sizeof(data), file);
	(void)fclose(file);
	(void)LLVMFuzzerTestOneInput(data, size);
	return 0;
}

int main(int count, char **arguments)
{
	if (count < 3) {
		(void)fprintf(stderr, "usage: replay COUNT SEED [FILE...]\n");
		return 2;
	}
	unsigned long inputs = strtoul(arguments[1], NULL, 10);
	uint64_t random = strtoull(arguments[2], NULL, 10) | 1;
	for (int i = 3; i < count; i++)
		if (run_file(arguments[i]) != 0)
			return 1;
	for (unsigned long i = 0; i < inputs; i++) {
		uint8_t data[INPUT_MAX];
		for (size_t at = 0; at < sizeof(data); at++) {
			random ^= random << 13;
			random ^= random >> 7;
			random ^= random << 17;
			data[at] = (uint8_t)(random >> 24);
		}
		(void)LLVMFuzzerTestOneInput(data, (size_t)(random >> 40) % INPUT_MAX);
	}
	(void)printf("%d files and %lu random inputs (seed %s)\n", count - 3, inputs, arguments[2]);
	return 0;
}
