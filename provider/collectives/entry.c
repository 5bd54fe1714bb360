/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * entry.c - libvicinal-mpi.so: MPI's collectives among members of one region go through the region.
 *
 * The library is loaded by LD_PRELOAD, in front of the MPI library. It has the MPI and the PMPI names. The
 * MPI library's Fortran functions call PMPI functions, and so do profiling tools. So what they call is here,
 * and a tool behind this library is called first.
 *
 * VICINAL_COLLECTIVES=off passes all calls on. entry_varying.c has the collectives with a count for each
 * rank.
 */
#include "collectives/entry.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/reduce.h"

_Atomic enum collectives_state collectives_state;

void collectives_decide(void)
{
	const char *text = getenv("VICINAL_COLLECTIVES");

	atomic_store(&collectives_state,
		     text != NULL && strcmp(text, "off") == 0 ? COLLECTIVES_OFF : COLLECTIVES_ON);
}

/* The highest limit of all collectives. Longer data is never taken, so it need not be packed. */
#define PACK_LIMIT (INT64_C(128) << 10)

static bool is_possible(const struct communicator *communicator, int64_t length, int root)
{
	/* No data costs no copy, so the MPI library is as fast. */
	return length > 0 && length <= PACK_LIMIT && root >= 0 && root < communicator->size;
}

/* Ends a collective: unpacks what was received. */
static enum outcome finish(enum outcome outcome, struct data *from, struct data *to)
{
	if (from != NULL)
		data_sent(from);
	if (to != NULL && outcome == OUTCOME_DONE && data_received(to) != MPI_OK)
		return OUTCOME_FAILED;
	if (to != NULL)
		data_sent(to);
	return outcome;
}

static enum outcome bcast(struct communicator *c, void *buffer, int64_t count, handle type, int root)
{
	int64_t length = data_bytes(count, type);

	if (!is_possible(c, length, root))
		return OUTCOME_PASS;
	if (c->rank == root) {
		struct data from = data_to_send(buffer, count, type, length);
		if (data_lacks_memory(&from))
			return OUTCOME_FAILED;
		return finish(move_bcast(c, from.bytes, length, root), &from, NULL);
	}
	struct data to = data_to_receive(buffer, count, type, length);
	if (data_lacks_memory(&to))
		return OUTCOME_FAILED;
	return finish(move_bcast(c, to.bytes, length, root), NULL, &to);
}

static enum outcome gather(struct communicator *c, const void *send, int64_t send_count, handle send_type,
			   void *receive, int64_t count, handle type, int root, bool all)
{
	bool receives = all || c->rank == root;
	int64_t length = receives ? data_bytes(count, type) : data_bytes(send_count, send_type);
	struct data from;
	struct data to = {.bytes = NULL};

	if (!is_possible(c, length, root))
		return OUTCOME_PASS;
	if (receives && send == mpi.in_place) {
		send = data_element(receive, c->rank * count, type);
		send_count = count;
		send_type = type;
	}
	from = data_to_send(send, send_count, send_type, length);
	if (receives)
		to = data_to_receive(receive, count * c->size, type, length * c->size);
	if (data_lacks_memory(&from) || (receives && data_lacks_memory(&to)))
		return finish(OUTCOME_FAILED, &from, &to);
	return finish(all ? move_allgather(c, from.bytes, to.bytes, length)
			  : move_gather(c, from.bytes, to.bytes, length, root),
		      &from, receives ? &to : NULL);
}

static enum outcome scatter(struct communicator *c, const void *send, int64_t count, handle type,
			    void *receive, int64_t receive_count, handle receive_type, int root)
{
	bool sends = c->rank == root;
	bool keeps = sends && receive == mpi.in_place;
	int64_t length = sends ? data_bytes(count, type) : data_bytes(receive_count, receive_type);
	struct data from = {.bytes = NULL};
	struct data to = {.bytes = NULL};

	if (!is_possible(c, length, root))
		return OUTCOME_PASS;
	if (sends)
		from = data_to_send(send, count * c->size, type, length * c->size);
	if (!keeps)
		to = data_to_receive(receive, receive_count, receive_type, length);
	if ((sends && data_lacks_memory(&from)) || (!keeps && data_lacks_memory(&to)))
		return finish(OUTCOME_FAILED, &from, &to);
	return finish(move_scatter(c, from.bytes, to.bytes, length, root), &from, keeps ? NULL : &to);
}

static enum outcome alltoall(struct communicator *c, const void *send, int64_t send_count, handle send_type,
			     void *receive, int64_t count, handle type)
{
	int64_t length = data_bytes(count, type);

	if (!is_possible(c, length, 0))
		return OUTCOME_PASS;
	if (send == mpi.in_place) {
		send = receive;
		send_count = count;
		send_type = type;
	}
	struct data from = data_to_send(send, send_count * c->size, send_type, length * c->size);
	struct data to = data_to_receive(receive, count * c->size, type, length * c->size);
	if (data_lacks_memory(&from) || data_lacks_memory(&to))
		return finish(OUTCOME_FAILED, &from, &to);
	return finish(move_alltoall(c, from.bytes, to.bytes, length), &from, &to);
}

static enum outcome reduce_scatter_block(struct communicator *c, const struct operation *operation,
					 const unsigned char *from, unsigned char *to, int64_t count)
{
	int64_t counts[COMMUNICATOR_MEMBERS_MAX];

	for (int rank = 0; rank < c->size; rank++)
		counts[rank] = count;
	return reduce_scatter(c, operation, from, to, counts);
}

enum reducing { TO_ROOT, TO_ALL, SCATTERED, SCANNED, SCANNED_EXCLUSIVELY };

static enum outcome reduce(struct communicator *c, const void *send, void *receive, int64_t count,
			   handle type, handle op, int root, enum reducing reducing)
{
	struct operation operation = operation_of(type, op);
	int64_t parts = reducing == SCATTERED ? c->size : 1;
	int64_t length = data_bytes(count, type);
	bool receives = reducing != TO_ROOT || c->rank == root;
	/* MPI leaves the first rank's buffer unchanged. */
	bool keeps = !receives || (reducing == SCANNED_EXCLUSIVELY && c->rank == 0);
	enum outcome outcome = OUTCOME_FAILED;
	struct data to = {.bytes = NULL};

	if (!is_possible(c, length, root))
		return OUTCOME_PASS;
	struct data from =
		data_to_send(send == mpi.in_place ? receive : send, count * parts, type, length * parts);
	if (!keeps)
		to = data_to_receive(receive, count, type, length);
	if (data_lacks_memory(&from) || (!keeps && data_lacks_memory(&to)))
		return finish(OUTCOME_FAILED, &from, &to);
	switch (reducing) {
	case TO_ROOT:
		outcome = reduce_to_root(c, &operation, from.bytes, to.bytes, count, root);
		break;
	case TO_ALL:
		outcome = reduce_to_all(c, &operation, from.bytes, to.bytes, count);
		break;
	case SCATTERED:
		outcome = reduce_scatter_block(c, &operation, from.bytes, to.bytes, count);
		break;
	default:
		outcome = reduce_scan(c, &operation, from.bytes, to.bytes, count,
				      reducing == SCANNED_EXCLUSIVELY);
		break;
	}
	return finish(outcome, &from, keeps ? NULL : &to);
}

/* ---- the functions of MPI ---- */

/*
 * The same with counts of type int, and of type MPI_Count. If the MPI library lacks the latter form, the
 * plain one serves, because small counts are passed alike. `most` is the greatest count.
 */
#define DEFINE_BOTH(name, most, reduces, parameters_of, arguments, does) \
	DEFINE(name, reduces, parameters_of(int), arguments, does, refuse_count(comm)) \
	DEFINE(name##_c, reduces, parameters_of(large), arguments, does, \
	       (most) <= INT_MAX ? ((name##_c_function *)mpi.functions[FUNCTION_##name])(UNWRAP arguments) \
				 : refuse_count(comm))

#define BCAST_PARAMETERS(number) (void *buffer, number count, handle type, int root, handle comm)
#define GATHER_PARAMETERS(number) \
	(const void *send, number send_count, handle send_type, void *receive, number count, handle type, \
	 int root, handle comm)
#define ALLGATHER_PARAMETERS(number) \
	(const void *send, number send_count, handle send_type, void *receive, number count, handle type, \
	 handle comm)
#define REDUCE_PARAMETERS(number) \
	(const void *send, void *receive, number count, handle type, handle op, int root, handle comm)
#define ALLREDUCE_PARAMETERS(number) \
	(const void *send, void *receive, number count, handle type, handle op, handle comm)

DEFINE(Barrier, false, (handle comm), (comm), move_barrier(c), refuse_count(comm))
DEFINE_BOTH(Bcast, count, false, BCAST_PARAMETERS, (buffer, count, type, root, comm),
	    bcast(c, buffer, count, handle_of(type), root))
DEFINE_BOTH(Gather, send_count > count ? send_count : count, false, GATHER_PARAMETERS,
	    (send, send_count, send_type, receive, count, type, root, comm),
	    gather(c, send, send_count, handle_of(send_type), receive, count, handle_of(type), root, false))
DEFINE_BOTH(Allgather, send_count > count ? send_count : count, false, ALLGATHER_PARAMETERS,
	    (send, send_count, send_type, receive, count, type, comm),
	    gather(c, send, send_count, handle_of(send_type), receive, count, handle_of(type), 0, true))
DEFINE_BOTH(Scatter, send_count > count ? send_count : count, false, GATHER_PARAMETERS,
	    (send, send_count, send_type, receive, count, type, root, comm),
	    scatter(c, send, send_count, handle_of(send_type), receive, count, handle_of(type), root))
DEFINE_BOTH(Alltoall, send_count > count ? send_count : count, false, ALLGATHER_PARAMETERS,
	    (send, send_count, send_type, receive, count, type, comm),
	    alltoall(c, send, send_count, handle_of(send_type), receive, count, handle_of(type)))
DEFINE_BOTH(Reduce, count, true, REDUCE_PARAMETERS, (send, receive, count, type, op, root, comm),
	    reduce(c, send, receive, count, handle_of(type), handle_of(op), root, TO_ROOT))
DEFINE_BOTH(Allreduce, count, true, ALLREDUCE_PARAMETERS, (send, receive, count, type, op, comm),
	    reduce(c, send, receive, count, handle_of(type), handle_of(op), 0, TO_ALL))
DEFINE_BOTH(Reduce_scatter_block, count, true, ALLREDUCE_PARAMETERS, (send, receive, count, type, op, comm),
	    reduce(c, send, receive, count, handle_of(type), handle_of(op), 0, SCATTERED))
DEFINE_BOTH(Scan, count, true, ALLREDUCE_PARAMETERS, (send, receive, count, type, op, comm),
	    reduce(c, send, receive, count, handle_of(type), handle_of(op), 0, SCANNED))
DEFINE_BOTH(Exscan, count, true, ALLREDUCE_PARAMETERS, (send, receive, count, type, op, comm),
	    reduce(c, send, receive, count, handle_of(type), handle_of(op), 0, SCANNED_EXCLUSIVELY))

/* The session is passed on as it is: a pointer in all interfaces. */
static int session_finalize_here(void *session)
{
	mpi_look_up();
	communicators_settle();
	return MPI_CALL(Session_finalize, void *)(session);
}

VISIBLE int PMPI_Session_finalize(void *session);
int PMPI_Session_finalize(void *session)
{
	return session_finalize_here(session);
}

VISIBLE int MPI_Session_finalize(void *session);
int MPI_Session_finalize(void *session)
{
	mpi_look_up();
	if (mpi.tools[FUNCTION_Session_finalize] != NULL)
		return ((int (*)(void *))mpi.tools[FUNCTION_Session_finalize])(session);
	return session_finalize_here(session);
}

static int finalize_here(void)
{
	mpi_look_up();
	communicators_finish();
	return MPI_CALL(Finalize, void)();
}

VISIBLE int PMPI_Finalize(void);
int PMPI_Finalize(void)
{
	return finalize_here();
}

VISIBLE int MPI_Finalize(void);
int MPI_Finalize(void)
{
	mpi_look_up();
	if (mpi.tools[FUNCTION_Finalize] != NULL)
		return ((int (*)(void))mpi.tools[FUNCTION_Finalize])();
	return finalize_here();
}
