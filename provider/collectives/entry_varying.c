/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * entry_varying.c - MPI's collectives with a count for each rank.
 *
 * Arrays of counts and displacements are of type int in the plain forms, and of types MPI_Count and MPI_Aint
 * in the forms with large counts. They are passed as pointers without a type.
 */
#include <stdlib.h>

#include "collectives/entry.h"
#include "collectives/reduce.h"
#include "collectives/varying.h"

/* ---- what the region does ---- */

static bool is_root_valid(const struct communicator *c, int root)
{
	return root >= 0 && root < c->size;
}

static enum outcome allgatherv(struct communicator *c, const void *send, int64_t send_count, handle send_type,
			       const void *receive, const void *counts, const void *displacements,
			       handle type, bool is_large)
{
	struct blocks own = {.buffer = send};
	struct blocks all = blocks_of(receive, counts, displacements, type, is_large);

	if (send == mpi.in_place)
		return vary_allgather(c, NULL, &all);
	own = blocks_of_one(send, send_count, send_type);
	return vary_allgather(c, &own, &all);
}

static enum outcome gatherv(struct communicator *c, const void *send, int64_t send_count, handle send_type,
			    const void *receive, const void *counts, const void *displacements, handle type,
			    int root, bool is_large)
{
	bool keeps = send == mpi.in_place && c->rank == root;
	struct blocks own = {.buffer = send};
	struct blocks others = {.buffer = receive};

	if (!is_root_valid(c, root))
		return OUTCOME_PASS;
	if (!keeps)
		own = blocks_of_one(send, send_count, send_type);
	/* The other ranks' parameters say nothing. */
	if (c->rank == root)
		others = blocks_of(receive, counts, displacements, type, is_large);
	return vary_gather(c, keeps ? NULL : &own, &others, root);
}

static enum outcome scatterv(struct communicator *c, const void *send, const void *counts,
			     const void *displacements, handle send_type, const void *receive, int64_t count,
			     handle type, int root, bool is_large)
{
	bool keeps = receive == mpi.in_place && c->rank == root;
	struct blocks others = {.buffer = send};
	struct blocks own = {.buffer = receive};

	if (!is_root_valid(c, root))
		return OUTCOME_PASS;
	if (c->rank == root)
		others = blocks_of(send, counts, displacements, send_type, is_large);
	if (!keeps)
		own = blocks_of_one(receive, count, type);
	return vary_scatter(c, &others, keeps ? NULL : &own, root);
}

/* If `send` is MPI_IN_PLACE, its other parameters say nothing. */
static enum outcome alltoallv(struct communicator *c, const void *send, const void *send_counts,
			      const void *send_displacements, handle send_type, const void *receive,
			      const void *counts, const void *displacements, handle type, bool is_large)
{
	struct blocks to = blocks_of(receive, counts, displacements, type, is_large);

	if (send == mpi.in_place)
		return vary_alltoall(c, NULL, &to);
	struct blocks from = blocks_of(send, send_counts, send_displacements, send_type, is_large);
	return vary_alltoall(c, &from, &to);
}

static enum outcome alltoallw(struct communicator *c, const void *send, const void *send_counts,
			      const void *send_displacements, const void *send_types, const void *receive,
			      const void *counts, const void *displacements, const void *types, bool is_large)
{
	struct blocks to = blocks_of_types(receive, counts, displacements, types, is_large);

	if (send == mpi.in_place)
		return vary_alltoall(c, NULL, &to);
	struct blocks from = blocks_of_types(send, send_counts, send_displacements, send_types, is_large);
	return vary_alltoall(c, &from, &to);
}

static enum outcome reduce_scatterv(struct communicator *c, const void *send, void *receive,
				    const void *counts, handle type, handle op, bool is_large)
{
	struct operation operation = operation_of(type, op);
	int64_t numbers[COMMUNICATOR_MEMBERS_MAX];
	int64_t total = 0;
	enum outcome outcome = OUTCOME_FAILED;

	for (int rank = 0; rank < c->size; rank++) {
		numbers[rank] = is_large ? ((const int64_t *)counts)[rank] : ((const int *)counts)[rank];
		if (numbers[rank] < 0 || __builtin_add_overflow(total, numbers[rank], &total))
			return OUTCOME_PASS;
	}
	if (!reduce_scatter_is_worth(c, &operation, total))
		return reduce_scatter(c, &operation, NULL, NULL, numbers);
	struct data from =
		data_to_send(send == mpi.in_place ? receive : send, total, type, total * operation.size);
	struct data to = data_to_receive(receive, numbers[c->rank], type, numbers[c->rank] * operation.size);
	if (!data_lacks_memory(&from) && !data_lacks_memory(&to))
		outcome = reduce_scatter(c, &operation, from.bytes, to.bytes, numbers);
	data_sent(&from);
	if (outcome == OUTCOME_DONE && data_received(&to) != MPI_OK)
		return OUTCOME_FAILED;
	data_sent(&to);
	return outcome;
}

/* ---- MPI libraries without large counts ---- */

/* Arrays of large counts and displacements as ints, for the plain form. */
struct narrow {
	int *lists[4];
	int number;
	int ranks;
	bool fits;
};

/* `significant`: the arrays are. Otherwise they are not looked at. */
static struct narrow narrow_begin(handle comm, bool of_remote, bool significant)
{
	struct narrow narrow = {.fits = true};
	int inter = 0;

	if (!significant)
		return narrow;
	(void)MPI_CALL(Comm_test_inter, handle, int *)(comm, &inter);
	if (inter != 0 && of_remote)
		(void)MPI_CALL(Comm_remote_size, handle, int *)(comm, &narrow.ranks);
	else
		(void)MPI_CALL(Comm_size, handle, int *)(comm, &narrow.ranks);
	return narrow;
}

static bool is_this_root(handle comm, int root)
{
	int inter = 0;
	int rank = 0;

	(void)MPI_CALL(Comm_test_inter, handle, int *)(comm, &inter);
	if (inter != 0) /* MPI_ROOT */
		return root == (mpi.abi == ABI_OPEN_MPI ? -4 : -3);
	(void)MPI_CALL(Comm_rank, handle, int *)(comm, &rank);
	return root == rank;
}

static const int *narrow_list(struct narrow *narrow, const void *values)
{
	const int64_t *wide = values;
	int *list = narrow->ranks > 0 ? calloc((size_t)narrow->ranks, sizeof(*list)) : NULL;

	narrow->lists[narrow->number++] = list;
	if (list == NULL && narrow->ranks > 0)
		narrow->fits = false;
	for (int rank = 0; rank < narrow->ranks && list != NULL; rank++) {
		narrow->fits = narrow->fits && wide[rank] <= INT_MAX && wide[rank] >= INT_MIN;
		list[rank] = (int)wide[rank];
	}
	return list;
}

/*
 * For blocks to send and to receive: `values` are the counts and displacements of both, and so are `lists`.
 * In place, those to send are not looked at.
 */
static struct narrow narrow_rows(handle comm, const void *send, const void *const values[4],
				 const int *lists[4])
{
	struct narrow narrow = narrow_begin(comm, true, true);

	for (int i = 0; i < 4; i++)
		lists[i] = i < 2 && send == mpi.in_place ? NULL : narrow_list(&narrow, values[i]);
	return narrow;
}

static int narrow_end(const struct narrow *narrow, int status)
{
	for (int i = 0; i < narrow->number; i++)
		free(narrow->lists[i]);
	return status;
}

#define NARROW(name, narrow, most, comm, ...) \
	narrow_end(&(narrow), (narrow).fits && (most) <= INT_MAX \
				      ? ((name##_function *)mpi.functions[FUNCTION_##name])(__VA_ARGS__) \
				      : refuse_count(comm))

/* ---- the functions of MPI ---- */

/* The same with counts of type int, and of type MPI_Count. `does` is a macro of `is_large`. */
#define DEFINE_BOTH(name, reduces, parameters_of, arguments, does) \
	static int name##_narrow parameters_of(large); \
	DEFINE(name, reduces, parameters_of(int), arguments, does(false), refuse_count(comm)) \
	DEFINE(name##_c, reduces, parameters_of(large), arguments, does(true), name##_narrow arguments)

#define ALLGATHERV_PARAMETERS(number) \
	(const void *send, number send_count, handle send_type, void *receive, const void *counts, \
	 const void *displacements, handle type, handle comm)
#define ALLGATHERV(is_large) \
	allgatherv(c, send, send_count, handle_of(send_type), receive, counts, displacements, \
		   handle_of(type), is_large)
DEFINE_BOTH(Allgatherv, false, ALLGATHERV_PARAMETERS,
	    (send, send_count, send_type, receive, counts, displacements, type, comm), ALLGATHERV)

static int Allgatherv_narrow ALLGATHERV_PARAMETERS(large)
{
	struct narrow n = narrow_begin(comm, true, true);
	const int *plain_counts = narrow_list(&n, counts);
	const int *plain_displacements = narrow_list(&n, displacements);

	return NARROW(Allgatherv, n, send_count, comm, send, (int)send_count, send_type, receive,
		      plain_counts, plain_displacements, type, comm);
}

#define GATHERV_PARAMETERS(number) \
	(const void *send, number send_count, handle send_type, void *receive, const void *counts, \
	 const void *displacements, handle type, int root, handle comm)
#define GATHERV(is_large) \
	gatherv(c, send, send_count, handle_of(send_type), receive, counts, displacements, handle_of(type), \
		root, is_large)
DEFINE_BOTH(Gatherv, false, GATHERV_PARAMETERS,
	    (send, send_count, send_type, receive, counts, displacements, type, root, comm), GATHERV)

static int Gatherv_narrow GATHERV_PARAMETERS(large)
{
	struct narrow n = narrow_begin(comm, true, is_this_root(comm, root));
	const int *plain_counts = narrow_list(&n, counts);
	const int *plain_displacements = narrow_list(&n, displacements);

	return NARROW(Gatherv, n, send_count, comm, send, (int)send_count, send_type, receive, plain_counts,
		      plain_displacements, type, root, comm);
}

#define SCATTERV_PARAMETERS(number) \
	(const void *send, const void *counts, const void *displacements, handle send_type, void *receive, \
	 number count, handle type, int root, handle comm)
#define SCATTERV(is_large) \
	scatterv(c, send, counts, displacements, handle_of(send_type), receive, count, handle_of(type), \
		 root, is_large)
DEFINE_BOTH(Scatterv, false, SCATTERV_PARAMETERS,
	    (send, counts, displacements, send_type, receive, count, type, root, comm), SCATTERV)

static int Scatterv_narrow SCATTERV_PARAMETERS(large)
{
	struct narrow n = narrow_begin(comm, true, is_this_root(comm, root));
	const int *plain_counts = narrow_list(&n, counts);
	const int *plain_displacements = narrow_list(&n, displacements);

	return NARROW(Scatterv, n, count, comm, send, plain_counts, plain_displacements, send_type, receive,
		      (int)count, type, root, comm);
}

/* No parameter is a number here: both forms have the same. */
#define ALLTOALLV_PARAMETERS(number) \
	(const void *send, const void *send_counts, const void *send_displacements, handle send_type, \
	 void *receive, const void *counts, const void *displacements, handle type, handle comm)
#define ALLTOALLV(is_large) \
	alltoallv(c, send, send_counts, send_displacements, handle_of(send_type), receive, counts, \
		  displacements, handle_of(type), is_large)
DEFINE_BOTH(Alltoallv, false, ALLTOALLV_PARAMETERS,
	    (send, send_counts, send_displacements, send_type, receive, counts, displacements, type, comm),
	    ALLTOALLV)

static int Alltoallv_narrow ALLTOALLV_PARAMETERS(large)
{
	const void *const wide[4] = {send_counts, send_displacements, counts, displacements};
	const int *plain[4];
	struct narrow n = narrow_rows(comm, send, wide, plain);

	return NARROW(Alltoallv, n, 0, comm, send, plain[0], plain[1], send_type, receive, plain[2], plain[3],
		      type, comm);
}

/* The arrays of datatypes are the same in both forms. */
#define ALLTOALLW_PARAMETERS(number) \
	(const void *send, const void *send_counts, const void *send_displacements, const void *send_types, \
	 void *receive, const void *counts, const void *displacements, const void *types, handle comm)
#define ALLTOALLW(is_large) \
	alltoallw(c, send, send_counts, send_displacements, send_types, receive, counts, displacements, \
		  types, is_large)
DEFINE_BOTH(Alltoallw, false, ALLTOALLW_PARAMETERS,
	    (send, send_counts, send_displacements, send_types, receive, counts, displacements, types, comm),
	    ALLTOALLW)

static int Alltoallw_narrow ALLTOALLW_PARAMETERS(large)
{
	const void *const wide[4] = {send_counts, send_displacements, counts, displacements};
	const int *plain[4];
	struct narrow n = narrow_rows(comm, send, wide, plain);

	return NARROW(Alltoallw, n, 0, comm, send, plain[0], plain[1], send_types, receive, plain[2],
		      plain[3], types, comm);
}

#define REDUCE_SCATTER_PARAMETERS(number) \
	(const void *send, void *receive, const void *counts, handle type, handle op, handle comm)
#define REDUCE_SCATTER(is_large) \
	reduce_scatterv(c, send, receive, counts, handle_of(type), handle_of(op), is_large)
DEFINE_BOTH(Reduce_scatter, true, REDUCE_SCATTER_PARAMETERS, (send, receive, counts, type, op, comm),
	    REDUCE_SCATTER)

static int Reduce_scatter_narrow REDUCE_SCATTER_PARAMETERS(large)
{
	struct narrow n = narrow_begin(comm, false, true);
	const int *plain_counts = narrow_list(&n, counts);

	return NARROW(Reduce_scatter, n, 0, comm, send, receive, plain_counts, type, op, comm);
}
