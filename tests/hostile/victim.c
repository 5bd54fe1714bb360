/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * victim RANKS SECONDS SEED - endpoints in processes of their own, which send each other messages of all
 * kinds while another process scribbles over their region.
 *
 * Errors are expected: an endpoint with errors is closed, and another one is opened in its place. No process
 * may die or hang, and no byte beside a receive's buffer may change. Prints "ready" once messages flow, and a
 * line for each rank SECONDS later.
 */
#include <errno.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RANKS_MAX 8U
#define NAME_BYTES 64U
#define LONGEST 300000U
#define GUARD_BYTES 64U
#define GUARD_VALUE 0xa5
#define RECEIVES 8U
#define SENDS_MAX 64U
#define ERRORS_BEFORE_REOPENING 20U
/* The time limit for starting, and for closing. Only against hanging, not a measurement. */
#define PATIENCE_SECONDS 60U

/* Shared by the processes, on a page that is not scribbled on. */
struct board {
	atomic_uint ready;
	struct {
		atomic_uint generation; /* odd while the name changes */
		unsigned char name[NAME_BYTES];
	} ranks[RANKS_MAX];
};

struct receive {
	struct fi_context2 context;
	unsigned char *buffer; /* with guards at both ends */
	bool posted;
};

struct rank {
	struct board *board;
	uint32_t number;
	uint32_t count;
	uint64_t random;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_ep *endpoint;
	struct fid_av *av;
	struct fid_cq *cq;
	fi_addr_t peers[RANKS_MAX];
	uint32_t known[RANKS_MAX]; /* the generation of each name in `peers` */
	struct receive receives[RECEIVES];
	unsigned char *source;
	uint32_t sending;
	uint32_t recent_errors;
	uint64_t messages;
	uint64_t errors;
	uint64_t openings;
};

static double seconds_now(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static uint32_t below(struct rank *rank, uint32_t limit)
{
	rank->random ^= rank->random << 13;
	rank->random ^= rank->random >> 7;
	rank->random ^= rank->random << 17;
	return (uint32_t)(rank->random >> 11) % limit;
}

static void must(int result, const char *call)
{
	if (result == 0)
		return;
	(void)fprintf(stderr, "victim: %s: %s\n", call, fi_strerror(-result));
	exit(3);
}

static void open_domain(struct rank *rank)
{
	struct fi_info *hints = fi_allocinfo();

	if (hints == NULL)
		exit(3);
	hints->caps = FI_TAGGED | FI_SOURCE | FI_DIRECTED_RECV;
	hints->ep_attr->type = FI_EP_RDM;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->fabric_attr->prov_name = strdup("vicinal");
	must(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &rank->info), "fi_getinfo");
	fi_freeinfo(hints);
	must(fi_fabric(rank->info->fabric_attr, &rank->fabric, NULL), "fi_fabric");
	must(fi_domain(rank->fabric, rank->info, &rank->domain, NULL), "fi_domain");
}

static void check_guards(const struct receive *receive)
{
	for (uint32_t i = 0; i < GUARD_BYTES; i++)
		if (receive->buffer[i] != GUARD_VALUE ||
		    receive->buffer[GUARD_BYTES + LONGEST + i] != GUARD_VALUE) {
			(void)fprintf(stderr, "victim: a byte beside a buffer was overwritten\n");
			exit(4);
		}
}

static void close_endpoint(struct rank *rank)
{
	if (rank->endpoint != NULL)
		must(fi_close(&rank->endpoint->fid), "fi_close of an endpoint");
	if (rank->cq != NULL)
		must(fi_close(&rank->cq->fid), "fi_close of a completion queue");
	if (rank->av != NULL)
		must(fi_close(&rank->av->fid), "fi_close of an address vector");
	rank->endpoint = NULL;
	rank->cq = NULL;
	rank->av = NULL;
	for (uint32_t i = 0; i < RECEIVES; i++) {
		check_guards(&rank->receives[i]);
		rank->receives[i].posted = false;
	}
}

/* Returns false if the region in its present state lets nobody join. */
static bool open_endpoint(struct rank *rank)
{
	struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED};
	struct fi_av_attr av = {.type = FI_AV_TABLE};
	size_t length = NAME_BYTES;
	unsigned char name[NAME_BYTES] = {0};

	rank->openings++;
	rank->recent_errors = 0;
	rank->sending = 0;
	memset(rank->known, 0, sizeof(rank->known));
	must(fi_cq_open(rank->domain, &cq, &rank->cq, NULL), "fi_cq_open");
	must(fi_av_open(rank->domain, &av, &rank->av, NULL), "fi_av_open");
	must(fi_endpoint(rank->domain, rank->info, &rank->endpoint, NULL), "fi_endpoint");
	must(fi_ep_bind(rank->endpoint, &rank->cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
	must(fi_ep_bind(rank->endpoint, &rank->av->fid, 0), "fi_ep_bind");
	if (fi_enable(rank->endpoint) != 0 || fi_getname(&rank->endpoint->fid, name, &length) != 0) {
		close_endpoint(rank);
		return false;
	}
	atomic_uint *generation = &rank->board->ranks[rank->number].generation;
	(void)atomic_fetch_add(generation, 1);
	memcpy(rank->board->ranks[rank->number].name, name, NAME_BYTES);
	(void)atomic_fetch_add(generation, 1);
	return true;
}

/* The newest address of `peer`; FI_ADDR_UNSPEC while it has no address that can be reached. */
static fi_addr_t address_of(struct rank *rank, uint32_t peer)
{
	unsigned char name[NAME_BYTES];
	uint32_t generation = atomic_load(&rank->board->ranks[peer].generation);

	if (generation == 0 || generation % 2 == 1)
		return FI_ADDR_UNSPEC;
	if (generation != rank->known[peer]) {
		memcpy(name, rank->board->ranks[peer].name, NAME_BYTES);
		if (atomic_load(&rank->board->ranks[peer].generation) != generation ||
		    fi_av_insert(rank->av, name, 1, &rank->peers[peer], 0, NULL) != 1)
			return FI_ADDR_UNSPEC;
		rank->known[peer] = generation;
	}
	return rank->peers[peer];
}

static void count_error(struct rank *rank)
{
	rank->errors++;
	rank->recent_errors++;
}

static void read_completions(struct rank *rank)
{
	struct fi_cq_tagged_entry entries[16];
	struct fi_cq_err_entry error = {0};
	ssize_t count = fi_cq_read(rank->cq, entries, 16);

	for (ssize_t i = 0; i < count; i++) {
		if ((entries[i].flags & FI_RECV) == 0) {
			rank->sending--;
			continue;
		}
		struct receive *receive = entries[i].op_context;
		if (receive == NULL) /* a peek */
			continue;
		receive->posted = false;
		check_guards(receive);
		rank->messages++;
	}
	if (count != -FI_EAVAIL || fi_cq_readerr(rank->cq, &error, 0) != 1)
		return;
	if ((error.flags & FI_RECV) == 0)
		rank->sending--;
	else if (error.op_context != NULL)
		((struct receive *)error.op_context)->posted = false;
	/* Errors without a fault: nothing to peek at, cancelled, a buffer chosen too short. */
	if (error.err != FI_ENOMSG && error.err != FI_ECANCELED && error.err != FI_ETRUNC)
		count_error(rank);
}

static void post_receive(struct rank *rank)
{
	struct receive *receive = &rank->receives[below(rank, RECEIVES)];
	fi_addr_t from = below(rank, 3) == 0 ? address_of(rank, below(rank, rank->count)) : FI_ADDR_UNSPEC;

	if (receive->posted)
		return;
	ssize_t result = fi_trecv(rank->endpoint, receive->buffer + GUARD_BYTES,
				  below(rank, 4) == 0 ? below(rank, LONGEST) : LONGEST, NULL, from,
				  below(rank, 4), below(rank, 2) == 0 ? 0 : 3, receive);
	if (result == 0)
		receive->posted = true;
	else
		count_error(rank);
}

static void send_message(struct rank *rank)
{
	static const uint32_t limits[] = {1, 60, 500, 5000, 70000, LONGEST};
	fi_addr_t to = address_of(rank, below(rank, rank->count));
	uint32_t length = below(rank, limits[below(rank, 6)]);
	struct iovec piece = {rank->source, length};
	struct fi_msg_tagged message = {.msg_iov = &piece, .iov_count = 1, .addr = to, .tag = below(rank, 4)};

	if (to == FI_ADDR_UNSPEC || rank->sending >= SENDS_MAX)
		return;
	ssize_t result = fi_tsendmsg(rank->endpoint, &message,
				     FI_COMPLETION | (below(rank, 4) == 0 ? FI_DELIVERY_COMPLETE : 0));
	if (result == 0)
		rank->sending++;
	else if (result != -FI_EAGAIN)
		count_error(rank);
}

static void look(struct rank *rank)
{
	struct fi_msg_tagged message = {.addr = FI_ADDR_UNSPEC, .ignore = 3};

	if (fi_trecvmsg(rank->endpoint, &message, FI_PEEK | (below(rank, 2) == 0 ? FI_DISCARD : 0)) != 0)
		count_error(rank);
}

static void step(struct rank *rank)
{
	switch (below(rank, 16)) {
	case 0:
		look(rank);
		break;
	case 1: {
		struct receive *receive = &rank->receives[below(rank, RECEIVES)];
		if (receive->posted)
			(void)fi_cancel(&rank->endpoint->fid, receive);
		break;
	}
	case 2:
	case 3:
	case 4:
	case 5:
		send_message(rank);
		break;
	case 6:
	case 7:
	case 8:
	case 9:
		post_receive(rank);
		break;
	default:
		read_completions(rank);
		break;
	}
}

static int run_rank(struct board *board, uint32_t number, uint32_t count, double seconds, uint64_t seed)
{
	struct rank rank = {
		.board = board, .number = number, .count = count, .random = seed * 16 + number + 1};
	bool told = false;

	/* This signal kills a process that hangs, and the parent sees that. */
	(void)alarm((unsigned)seconds + 2 * PATIENCE_SECONDS);
	rank.source = calloc(1, LONGEST);
	for (uint32_t i = 0; i < RECEIVES; i++) {
		rank.receives[i].buffer = malloc(LONGEST + 2 * GUARD_BYTES);
		if (rank.source == NULL || rank.receives[i].buffer == NULL)
			return 3;
		memset(rank.receives[i].buffer, GUARD_VALUE, LONGEST + 2 * GUARD_BYTES);
	}
	open_domain(&rank);
	/* The time begins when messages flow between all ranks. */
	for (double until = 0; until == 0 || seconds_now() < until;) {
		if (until == 0 && atomic_load(&board->ready) == count)
			until = seconds_now() + seconds;
		if (rank.endpoint == NULL && !open_endpoint(&rank)) {
			count_error(&rank);
			(void)usleep(10000);
			continue;
		}
		for (int i = 0; i < 200; i++)
			step(&rank);
		if (!told && rank.messages > 100) {
			(void)atomic_fetch_add(&board->ready, 1);
			told = true;
		}
		/* Some calls fail often and harmlessly, for example to a peer that is just opening again. */
		if (rank.recent_errors > ERRORS_BEFORE_REOPENING)
			close_endpoint(&rank);
	}
	close_endpoint(&rank);
	must(fi_close(&rank.domain->fid), "fi_close of the domain");
	must(fi_close(&rank.fabric->fid), "fi_close of the fabric");
	fi_freeinfo(rank.info);
	for (uint32_t i = 0; i < RECEIVES; i++)
		free(rank.receives[i].buffer);
	free(rank.source);
	(void)printf("rank=%u messages=%llu errors=%llu openings=%llu\n", number,
		     (unsigned long long)rank.messages, (unsigned long long)rank.errors,
		     (unsigned long long)rank.openings);
	return fflush(stdout) == 0 ? 0 : 3;
}

int main(int argument_count, char **arguments)
{
	if (argument_count != 4) {
		(void)fprintf(stderr, "usage: victim RANKS SECONDS SEED\n");
		return 2;
	}
	uint32_t count = (uint32_t)strtoul(arguments[1], NULL, 10);
	double seconds = strtod(arguments[2], NULL);
	uint64_t seed = strtoull(arguments[3], NULL, 10);
	if (count < 1 || count > RANKS_MAX)
		return 2;
	struct board *board =
		mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t ranks[RANKS_MAX];
	if (board == MAP_FAILED)
		return 3;
	for (uint32_t i = 0; i < count; i++) {
		ranks[i] = fork();
		if (ranks[i] == 0)
			exit(run_rank(board, i, count, seconds, seed));
	}
	/* Messages flow between all ranks: now the scribbling may begin. */
	for (double until = seconds_now() + PATIENCE_SECONDS;
	     seconds_now() < until && atomic_load(&board->ready) < count;)
		(void)usleep(10000);
	(void)printf(atomic_load(&board->ready) == count ? "ready\n" : "not ready\n");
	(void)fflush(stdout);
	int worst = 0;
	for (uint32_t i = 0; i < count; i++) {
		int status = 0;
		if (waitpid(ranks[i], &status, 0) != ranks[i] || status == 0)
			continue;
		worst = 1;
		if (WIFSIGNALED(status))
			(void)fprintf(stderr, "victim: rank %u was killed by signal %d\n", i,
				      WTERMSIG(status));
		else
			(void)fprintf(stderr, "victim: rank %u ended with status %d\n", i,
				      WEXITSTATUS(status));
	}
	return worst;
}
