/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * update.c - see update.h.
 *
 * Elements of less than 8 bytes in a row are updated by words of 8 bytes where that is possible, because an
 * atomic instruction costs the same for each length. A word's update fails if any element in it changed.
 */
#include "windows/update.h"

#include <pthread.h>
#include <string.h>

/* ---- operations ---- */

/* Predefined operations that only accumulates have, or that have no kernel. */
static struct {
	handle replace;
	handle no_op;
	handle minloc;
	handle maxloc;
} operators;

static void look_up(void)
{
	switch (mpi.abi) {
	case ABI_MPICH:
		operators.replace = 0x5800000d;
		operators.no_op = 0x5800000e;
		operators.minloc = 0x5800000b;
		operators.maxloc = 0x5800000c;
		break;
	case ABI_STANDARD:
		operators.replace = 0x3c;
		operators.no_op = 0x3d;
		operators.minloc = 0x38;
		operators.maxloc = 0x39;
		break;
	default:
		operators.replace = mpi_symbol(mpi.library, "ompi_mpi_op_replace");
		operators.no_op = mpi_symbol(mpi.library, "ompi_mpi_op_no_op");
		operators.minloc = mpi_symbol(mpi.library, "ompi_mpi_op_minloc");
		operators.maxloc = mpi_symbol(mpi.library, "ompi_mpi_op_maxloc");
		break;
	}
}

static bool find_kind(struct basic_type basic, handle op, struct update *update)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, look_up);
	bool number = basic.number != NUMBER_NONE && basic.number != NUMBER_F32 && basic.number != NUMBER_F64;
	enum operator operator= mpi_operator(op);
	update->kernel = NULL;
	if (op == operators.replace) {
		update->kind = UPDATE_REPLACE;
	} else if (op == operators.no_op) {
		update->kind = UPDATE_READ;
	} else if (number && operator== OPERATOR_SUM && !basic.bits_only) {
		update->kind = UPDATE_ADD;
	} else if (number && operator== OPERATOR_BAND) {
		update->kind = UPDATE_AND;
	} else if (number && operator== OPERATOR_BOR) {
		update->kind = UPDATE_OR;
	} else if (number && operator== OPERATOR_BXOR) {
		update->kind = UPDATE_XOR;
	} else if (operator!= OPERATOR_NONE || op == operators.minloc || op == operators.maxloc) {
		update->kind = UPDATE_REDUCE;
	} else {
		return false;
	}
	if (operator!= OPERATOR_NONE)
		update->kernel = find_reduction(basic, operator);
	return true;
}

const struct update *update_of(handle type, handle op)
{
	/* The last one of this thread, because programs repeat it. */
	static __thread __attribute__((tls_model("initial-exec"))) struct update last;

	if (__builtin_expect(last.size != 0 && last.type == type && last.op == op, 1))
		return &last;
	struct basic_type basic = mpi_basic_type(type);
	last.size = 0;
	if (basic.size == 0 || basic.size > 8 || (basic.size & (basic.size - 1)) != 0 ||
	    !find_kind(basic, op, &last))
		return NULL;
	last.type = type;
	last.op = op;
	last.size = basic.size;
	return &last;
}

/* ---- one word ---- */

/* The words of a window are the application's: any type may lie there. */
typedef uint8_t __attribute__((may_alias)) word8;
typedef uint16_t __attribute__((may_alias)) word16;
typedef uint32_t __attribute__((may_alias)) word32;
typedef uint64_t __attribute__((may_alias)) word64;

/* An update of one word that is one instruction, or a loop that the compiler makes of few instructions. */
#define DEFINE_WORD(bits) \
	static inline uint64_t simple_##bits(enum update_kind kind, unsigned char *target, uint64_t value, \
					     bool wanted) \
	{ \
		word##bits *word = (word##bits *)(void *)target; \
		word##bits operand = (word##bits)value; \
		switch (kind) { \
		case UPDATE_READ: \
			return __atomic_load_n(word, __ATOMIC_ACQUIRE); \
		case UPDATE_REPLACE: \
			if (wanted) \
				return __atomic_exchange_n(word, operand, __ATOMIC_ACQ_REL); \
			__atomic_store_n(word, operand, __ATOMIC_RELEASE); \
			return 0; \
		case UPDATE_AND: \
			return __atomic_fetch_and(word, operand, __ATOMIC_ACQ_REL); \
		case UPDATE_OR: \
			return __atomic_fetch_or(word, operand, __ATOMIC_ACQ_REL); \
		case UPDATE_XOR: \
			return __atomic_fetch_xor(word, operand, __ATOMIC_ACQ_REL); \
		default: \
			return __atomic_fetch_add(word, operand, __ATOMIC_ACQ_REL); \
		} \
	} \
	static inline bool swap_##bits(unsigned char *target, uint64_t *old, uint64_t value) \
	{ \
		word##bits expected = (word##bits) * old; \
		bool done = __atomic_compare_exchange_n((word##bits *)(void *)target, &expected, \
							(word##bits)value, false, __ATOMIC_ACQ_REL, \
							__ATOMIC_ACQUIRE); \
		*old = expected; \
		return done; \
	}

DEFINE_WORD(8)
DEFINE_WORD(16)
DEFINE_WORD(32)
DEFINE_WORD(64)

static inline uint64_t load(const unsigned char *target, uint32_t width)
{
	switch (width) {
	case 1:
		return __atomic_load_n((const word8 *)target, __ATOMIC_ACQUIRE);
	case 2:
		return __atomic_load_n((const word16 *)(const void *)target, __ATOMIC_ACQUIRE);
	case 4:
		return __atomic_load_n((const word32 *)(const void *)target, __ATOMIC_ACQUIRE);
	default:
		return __atomic_load_n((const word64 *)(const void *)target, __ATOMIC_ACQUIRE);
	}
}

static inline bool swap(unsigned char *target, uint32_t width, uint64_t *old, uint64_t value)
{
	switch (width) {
	case 1:
		return swap_8(target, old, value);
	case 2:
		return swap_16(target, old, value);
	case 4:
		return swap_32(target, old, value);
	default:
		return swap_64(target, old, value);
	}
}

static inline uint64_t simple(enum update_kind kind, unsigned char *target, uint32_t width, uint64_t value,
			      bool wanted)
{
	switch (width) {
	case 1:
		return simple_8(kind, target, value, wanted);
	case 2:
		return simple_16(kind, target, value, wanted);
	case 4:
		return simple_32(kind, target, value, wanted);
	default:
		return simple_64(kind, target, value, wanted);
	}
}

/* ---- rows ---- */

/* to = from, reduced with the operand. `count` elements. */
static bool reduce(const struct update *update, uint64_t *to, const uint64_t *from,
		   const unsigned char *operand, size_t count)
{
	if (update->kernel != NULL) {
		update->kernel(to, from, operand, count);
		return true;
	}
	memcpy(to, from, count * update->size);
	return MPI_CALL(Reduce_local, const void *, void *, int, handle,
			handle)(operand, to, (int)count, update->type, update->op) == MPI_OK;
}

/*
 * Tries of a compare-and-swap. No member of the program comes near it: each failed try is a successful update
 * of a peer. A hostile peer's store that hits all of them is overwritten, which spoils a value.
 */
#define TRIES 1000000

/* Updates a word whose value was `old`. Returns false, and does nothing, if the operation is not valid. */
static bool repeat(const struct update *update, unsigned char *target, uint32_t width, uint64_t *old,
		   const unsigned char *operand)
{
	for (int i = 0;; i++) {
		uint64_t value = 0;
		if (!reduce(update, &value, old, operand, width / update->size))
			return false;
		if (i >= TRIES) {
			*old = simple(UPDATE_REPLACE, target, width, value, true);
			return true;
		}
		if (swap(target, width, old, value))
			return true;
	}
}

#define ROW 32U

/* Words of the same width in a row, whose new values are computed together. */
static enum outcome reduce_row(const struct update *update, unsigned char *target, uint32_t width,
			       const unsigned char *operand, unsigned char *before, size_t words)
{
	uint64_t old[ROW];
	uint64_t value[ROW];
	bool begun = false;

	if (words == 1) {
		old[0] = load(target, width);
		if (!repeat(update, target, width, old, operand))
			return OUTCOME_PASS;
		if (before != NULL)
			memcpy(before, old, width);
		return OUTCOME_DONE;
	}
	for (size_t at = 0; at < words;) {
		size_t now = words - at < ROW ? words - at : ROW;
		/* Narrow words are updated one by one, because the operation needs the elements in a row. */
		if (width < 8)
			now = 1;
		for (size_t i = 0; i < now; i++)
			old[i] = load(target + (at + i) * width, width);
		if (!reduce(update, value, old, operand + at * width, now * width / update->size))
			return begun ? OUTCOME_FAILED : OUTCOME_PASS;
		begun = true;
		for (size_t i = 0; i < now; i++) {
			size_t offset = (at + i) * width;
			if (!swap(target + offset, width, &old[i], value[i]) &&
			    !repeat(update, target + offset, width, &old[i], operand + offset))
				return OUTCOME_FAILED;
			if (before != NULL)
				memcpy(before + offset, &old[i], width);
		}
		at += now;
	}
	return OUTCOME_DONE;
}

static inline void simple_row(enum update_kind kind, unsigned char *target, uint32_t width,
			      const unsigned char *operand, unsigned char *before, size_t words)
{
	for (size_t i = 0; i < words; i++) {
		uint64_t value = 0;
		if (operand != NULL)
			memcpy(&value, operand + i * width, width);
		value = simple(kind, target + i * width, width, value, before != NULL);
		if (before != NULL)
			memcpy(before + i * width, &value, width);
	}
}

static enum outcome apply(const struct update *update, unsigned char *target, uint32_t width,
			  const unsigned char *operand, unsigned char *before, size_t words)
{
	/* A sum of several elements in a word is no sum of words. */
	if (update->kind == UPDATE_REDUCE || (update->kind == UPDATE_ADD && width != update->size))
		return reduce_row(update, target, width, operand, before, words);
	simple_row(update->kind, target, width, operand, before, words);
	return OUTCOME_DONE;
}

enum outcome update_apply(const struct update *update, unsigned char *target, const unsigned char *operand,
			  unsigned char *before, size_t count)
{
	uint32_t size = update->size;
	size_t bytes = count * size;
	/* Elements before the first whole word of 8 bytes, whole words, and elements behind them. */
	size_t head = size == 8 ? 0 : (size_t)(-(uintptr_t)target % 8);
	bool begun = false;

	/* The short path. */
	if (count == 1 && update->kind != UPDATE_REDUCE) {
		simple_row(update->kind, target, size, operand, before, 1);
		return OUTCOME_DONE;
	}
	if (size == 8 || count == 1 || head + 8 > bytes)
		return apply(update, target, size, operand, before, count);
	size_t middle = (bytes - head) / 8 * 8;
	const struct {
		size_t at;
		size_t bytes;
		uint32_t width;
	} parts[] = {{0, head, size}, {head, middle, 8}, {head + middle, bytes - head - middle, size}};
	for (size_t i = 0; i < 3; i++) {
		if (parts[i].bytes == 0)
			continue;
		enum outcome outcome =
			apply(update, target + parts[i].at, parts[i].width,
			      operand != NULL ? operand + parts[i].at : NULL,
			      before != NULL ? before + parts[i].at : NULL, parts[i].bytes / parts[i].width);
		if (outcome != OUTCOME_DONE)
			return begun ? OUTCOME_FAILED : outcome;
		begun = true;
	}
	return OUTCOME_DONE;
}

bool update_swap(unsigned char *target, uint32_t size, const void *value, const void *compare, void *before)
{
	uint64_t old = 0;
	uint64_t next = 0;

	if (size == 0 || size > 8 || (size & (size - 1)) != 0 || (uintptr_t)target % size != 0)
		return false;
	memcpy(&old, compare, size);
	memcpy(&next, value, size);
	(void)swap(target, size, &old, next);
	memcpy(before, &old, size);
	return true;
}
