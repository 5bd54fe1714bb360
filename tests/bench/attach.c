/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * attach.c - what it takes to attach to a region, below libfabric.
 *
 *   attach ROUNDS NAME...
 *     Attaches to each region and detaches, by turns, ROUNDS times. Prints for each name the
 *     median and the highest microseconds of an attach, with the check of the header.
 *
 * Not a test: run it by hand, on a quiet machine. docs/explanation/region.md quotes its figures.
 */
#include <stdio.h>
#include <stdlib.h>

#include "region/member.h"

#define MOST_NAMES 8U

static int compare(const void *one, const void *other)
{
	double first = *(const double *)one;
	double second = *(const double *)other;

	return (first > second) - (first < second);
}

int main(int count, char **words)
{
	unsigned names = count > 2 ? (unsigned)count - 2 : 0;
	size_t rounds = count > 2 ? strtoul(words[1], NULL, 10) : 0;
	static double *taken[MOST_NAMES];
	struct region_error error;

	if (rounds == 0 || rounds > 1000000 || names > MOST_NAMES) {
		(void)fprintf(stderr, "usage: attach ROUNDS NAME...\n");
		return 2;
	}
	for (unsigned i = 0; i < names; i++)
		taken[i] = calloc(rounds, sizeof(double));
	for (size_t round = 0; round < rounds; round++)
		for (unsigned i = 0; i < names; i++) {
			struct region *region = NULL;
			uint64_t begun = monotonic_now();
			if (taken[i] == NULL || region_attach(words[2 + i], &region, &error) != 0) {
				(void)fprintf(stderr, "attach: error: %s\n",
					      taken[i] == NULL ? "no memory is left" : error.text);
				return 1;
			}
			taken[i][round] = (double)(monotonic_now() - begun) / 1e3;
			region_detach(region);
		}
	for (unsigned i = 0; i < names; i++) {
		qsort(taken[i], rounds, sizeof(double), compare);
		(void)printf("%s median=%.1f highest=%.1f\n", words[2 + i], taken[i][rounds / 2],
			     taken[i][rounds - 1]);
		free(taken[i]);
	}
	return 0;
}
