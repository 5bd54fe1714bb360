/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * atomic_operations.h - the arithmetic of atomic operations, on memory that others change.
 *
 * Elements of up to eight bytes are changed by the processor's own atomic instructions, so
 * that they are atomic to others that do the same: another thread, another process that maps
 * the memory, the application itself. Longer ones are atomic among the threads of this
 * process that come through here, by a lock; nobody else may change them meanwhile.
 */
#ifndef VICINAL_PROTO_ATOMIC_OPERATIONS_H
#define VICINAL_PROTO_ATOMIC_OPERATIONS_H

#include <rdma/fi_atomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a call does with the value that was there, and with a second operand. */
enum atomic_form {
	ATOMIC_BASE,    /* nothing */
	ATOMIC_FETCH,   /* gives it back */
	ATOMIC_COMPARE, /* compares it with, or masks it by, the second operand, and gives it back */
	ATOMIC_FORMS,
};

/* The longest element: a long double complex. */
#define ATOMIC_ELEMENT_BYTES_MAX 32U

/* Bytes of an element, or 0 if there is no such datatype here. Any number may be asked for. */
size_t atomic_element_bytes(uint32_t datatype);
/* What the address of an element must be a multiple of; a power of two. */
size_t atomic_alignment(uint32_t datatype);
/* Can elements of this type be changed so in this form? Any numbers may be asked for. */
bool atomic_is_valid(uint32_t datatype, uint32_t operation, uint32_t form);
/*
 * Are they changed by the processor's instructions, at this address? Then others that map
 * the memory may do the same operation at the same time.
 */
bool atomic_is_native(uint32_t datatype, uintptr_t address);

/*
 * Apply a valid operation to `count` elements at `target`, which is aligned. `operand` is
 * not looked at by FI_ATOMIC_READ, `compare` only by the form with it; `result` gets the
 * values before, unless it is NULL. These three need not be aligned.
 */
void atomic_apply(uint32_t datatype, uint32_t operation, void *target, const void *operand,
		  const void *compare, void *result, size_t count);

/* Before a fork: no thread is in atomic_apply() with what no instruction changes whole. */
void atomic_operations_lock(void);
void atomic_operations_unlock(void);

#endif
