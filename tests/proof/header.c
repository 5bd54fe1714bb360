/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * header.c - region_check_header() of any header in any number of bytes. In fewer bytes than a header has, no
 * byte of it is touched.
 */
#include "region/region.h"

static struct region_header header;
static struct region region;
static struct region_error error;

void prove(void)
{
	/* Fewer bytes than a header has: none of them may be touched. */
	size_t few = any_u64;
	if (few < sizeof(header))
		(void)region_check_header((const struct region_header *)(const void *)(&header + 1), few,
					  &region, &error);
	size_t bytes = any_u64;
	if (bytes < sizeof(header))
		return;
	if (region_check_header(&header, bytes, &region, &error) != 0)
		return;
}
