/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * region_member.c - a real member, without libfabric. Joins the region file:PATH, prints a line, and leaves
 * when its standard input ends. If it is killed before, it is a member that died.
 */
#include <stdio.h>

#include "region/member.h"

int main(int argc, char **argv)
{
	struct region *region = NULL;
	struct member *member = NULL;
	struct region_error error = {.text = ""};
	const uint64_t second = 1000000000U;

	if (argc != 2)
		return 2;
	if (region_attach(argv[1], &region, &error) != 0 ||
	    member_join(region, 0, 5 * second, &member, &error) != 0) {
		(void)fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	(void)printf("joined %u %u\n", member->slot, member->epoch);
	(void)fflush(stdout);
	while (getchar() != EOF)
		;
	member_leave(member);
	region_detach(region);
	return 0;
}
