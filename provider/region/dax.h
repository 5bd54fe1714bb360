/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dax.h - memory that the kernel offers as a character device, /dev/dax: CXL memory, or the memory
 * module (NVDIMM) of a virtual machine. It is mapped write-back, like ordinary memory.
 *
 * The file of a module on the host is longer than the device. Before the data, the file has the
 * info block of the namespace mode devdax, from which the guest's kernel makes the device. So a
 * region in such a file begins at the offset that the info block names.
 */
#ifndef VICINAL_REGION_DAX_H
#define VICINAL_REGION_DAX_H

#include <sys/stat.h>

#include "region/region.h"

/* The info block: docs/reference/region-format.md, "In a memory module's file". */
#define DAX_INFO_OFFSET 4096
#define DAX_INFO_SIGNATURE "NVDIMM_DAX_INFO"
/* The data comes after the info block. */
#define DAX_DATA_MIN 8192U

/*
 * Read the length of an open device in bytes from sysfs, because fstat() of a device gives none.
 * Returns 0, or a negative errno and a text if the file is not a DAX device or cannot be mapped
 * whole.
 */
int dax_length(const struct stat *status, const char *path, size_t *bytes, struct region_error *error);

/*
 * The offset of the region in an open file of `bytes` bytes: 0, unless an info block gives another
 * offset and no region begins at 0. The info block is not trusted, because any process that may
 * write the file may have written it. The result is always a multiple of a page and less than
 * `bytes`; nothing else is guaranteed.
 */
size_t dax_data_offset(int fd, size_t bytes);

#endif
