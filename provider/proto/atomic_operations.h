/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * atomic_operations.h - the arithmetic of atomic operations, on memory that other processes change.
 *
 * Elements of up to 8 bytes are changed by the processor's atomic instructions. So they are atomic for every
 * thread or process that uses such instructions too: other threads, other processes that map the memory, the
 * application itself. Longer elements are atomic only among this process's threads that call atomic_apply(),
 * by a lock. Nothing else may change them meanwhile.
 */
#ifndef VICINAL_PROTO_ATOMIC_OPERATIONS_H
#define VICINAL_PROTO_ATOMIC_OPERATIONS_H

#include <rdma/fi_atomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a call does with the previous value, and with a second operand. */
enum atomic_form {
	ATOMIC_BASE,    /* nothing */
	ATOMIC_FETCH,   /* returns it */
	ATOMIC_COMPARE, /* compares it with the second operand, or masks it, and returns it */
	ATOMIC_FORMS,
};

/* The longest element: a long double complex. */
#define ATOMIC_ELEMENT_BYTES_MAX 32U

/* The bytes of an element, or 0 for an unsupported datatype. Accepts any number. */
size_t atomic_element_bytes(uint32_t datatype);
/* The required alignment of an element; a power of two. */
size_t atomic_alignment(uint32_t datatype);
/* Whether the operation supports this type and form. Accepts any numbers. */
bool atomic_is_valid(uint32_t datatype, uint32_t operation, uint32_t form);
/*
 * Whether processor instructions change elements at this address. If so, other processes that map the memory
 * may do the same operation at the same time.
 */
bool atomic_is_native(uint32_t datatype, uintptr_t address);

/*
 * Applies a valid operation to `count` elements at `target`, which is aligned. FI_ATOMIC_READ ignores
 * `operand`, and only ATOMIC_COMPARE uses `compare`. `result` gets the previous values, unless it is NULL.
 * These three need not be aligned.
 */
void atomic_apply(uint32_t datatype, uint32_t operation, void *target, const void *operand,
		  const void *compare, void *result, size_t count);

/* For a fork: while the lock is held, no thread is inside an operation under the lock. */
void atomic_operations_lock(void);
void atomic_operations_unlock(void);

#endif
