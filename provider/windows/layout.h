/* SPDX-License-Identifier: BSD-3-Clause */
/* layout.h - where the elements of a derived datatype lie. Accumulates must update each of them as a whole.
 */
#ifndef VICINAL_WINDOWS_LAYOUT_H
#define VICINAL_WINDOWS_LAYOUT_H

#include "collectives/library.h"

/* The predefined datatype of which a datatype consists; 0 if it is not one that mpi_basic_type() knows. */
handle layout_leaf(handle type);

struct layout {
	int64_t extent;
	int64_t elements;
	int64_t offsets[]; /* of each element, in the order of the datatype */
};

/* The elements, of `size` bytes each, of one `type`. NULL if no memory is left. Released by free(). */
struct layout *layout_of(handle type, uint32_t size);

#endif
