/* SPDX-License-Identifier: BSD-3-Clause */
/* elements.h - drawn numbers, datatypes, and where the elements of a buffer lie. */
#ifndef WINDOWS_ELEMENTS_H
#define WINDOWS_ELEMENTS_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A stream of numbers that depends on its seed only. */
struct draw {
	uint64_t state;
};

struct draw draw_from(uint64_t seed, uint64_t step, uint64_t rank);
uint64_t draw_word(struct draw *draw);
int draw_below(struct draw *draw, int bound);

enum class { INTEGER, FLOATING, COMPLEX, LOGICAL, CHARACTERS, BYTES, PAIR };

struct element {
	MPI_Datatype type;
	const char *name;
	enum class class;
	size_t size;
	size_t used; /* bytes that have a value: a long double has padding */
};

extern const int element_count;
struct element element_at(int index);

/* Is a value of drawn bytes none, or computed differently? */
static inline bool element_is_delicate(const struct element *element)
{
	return element->class == FLOATING || element->class == COMPLEX || element->class == LOGICAL;
}

/* Stores a small value. */
void element_draw(const struct element *element, struct draw *draw, unsigned char *at);

/* An operation that MPI allows for the datatype in an accumulate, sometimes MPI_REPLACE or MPI_NO_OP. */
MPI_Op element_op(const struct element *element, struct draw *draw, const char **name);

/* A buffer of `elements` elements as MPI sees it: `count` of `type`. */
struct layout {
	const char *name;
	int elements;
	int count;
	MPI_Datatype type;
	bool made;          /* `type` is to be freed */
	size_t before;      /* bytes before the address that MPI gets */
	size_t bytes;       /* of the whole buffer */
	ptrdiff_t *offsets; /* of each element, from that address on */
};

/* `plain`: elements in a row, without a derived datatype. */
struct layout layout_draw(const struct element *element, int elements, bool plain, struct draw *draw);
void layout_free(struct layout *layout);

#endif
