/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dax.h - memory that the kernel hands out as a device of bytes, /dev/dax: CXL memory, or a memory
 * module (nvdimm) of a virtual machine. It is mapped write-back, as memory is.
 *
 * A module's file on the host holds more than the device does: before the data there is what the
 * guest's kernel needs to make a device of it, the info block of the namespace mode devdax. So a
 * region in such a file begins where that says.
 */
#ifndef VICINAL_REGION_DAX_H
#define VICINAL_REGION_DAX_H

#include <sys/stat.h>

#include "region/region.h"

/* The info block: docs/reference/region-format.md, "In a memory module's file". */
#define DAX_INFO_OFFSET 4096
#define DAX_INFO_SIGNATURE "NVDIMM_DAX_INFO"
/* The data comes behind the info block. */
#define DAX_DATA_MIN 8192U

/*
 * The length of an open device in bytes, from sysfs: fstat() of a device has none.
 * Returns 0, or a negative errno and a text for what is no DAX device or cannot be mapped whole.
 */
int dax_length(const struct stat *status, const char *path, size_t *bytes, struct region_error *error);

/*
 * Where the region begins in an open file of `bytes` bytes: 0, unless an info block says
 * otherwise and no region begins at 0. A process that may write the file may have written that: what this
 * returns is a multiple of a page and less than `bytes`, and nothing else is sure.
 */
size_t dax_data_offset(int fd, size_t bytes);

#endif
