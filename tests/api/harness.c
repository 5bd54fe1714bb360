/* SPDX-License-Identifier: BSD-3-Clause */
/* harness.c - see harness.h. */
#include "harness.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* After this many seconds a scenario hangs; each takes one or two. */
#define GUARD_SECONDS 120U
#define SHARED_WORDS 16

struct name {
	unsigned char bytes[NAME_MAX_BYTES];
	size_t length;
};

static struct common {
	_Atomic uint32_t arrived;
	_Atomic uint32_t generation;
	_Atomic uint64_t words[SHARED_WORDS];
	struct name names[RANKS_MAX][ENDPOINTS_MAX];
} * common;

static const char *scenario_name;
static int scenario_ranks;
static int own_rank;

/* ---- checks ---- */

_Noreturn void check_failed(const char *file, int line, const char *text)
{
	(void)fprintf(stderr, "FAILED %s, rank %d: %s:%d: %s\n", scenario_name, own_rank, file, line, text);
	_exit(1);
}

void check_same(long long actual, long long expected, const char *file, int line, const char *text)
{
	char line_text[512];

	if (actual == expected)
		return;
	(void)snprintf(line_text, sizeof(line_text), "%s is %lld (%#llx, %s) and should be %lld (%#llx)",
		       text, actual, (unsigned long long)actual, actual < 0 ? fi_strerror((int)-actual) : "-",
		       expected, (unsigned long long)expected);
	check_failed(file, line, line_text);
}

/* ---- one rank's side ---- */

struct fi_info *vicinal_hints(void)
{
	struct fi_info *hints = fi_allocinfo();

	CHECK(hints != NULL);
	hints->fabric_attr->prov_name = strdup("vicinal");
	/* Before 1.5 the core takes 0 for "unspecified", which is the basic mode. */
	hints->domain_attr->mr_mode = 0;
	return hints;
}

struct fi_info *ask(uint32_t version, const struct fi_info *hints, int *result)
{
	struct fi_info *info = NULL;
	int answer = fi_getinfo(version, NULL, NULL, 0, hints, &info);

	CHECK(answer != 0 || info != NULL);
	if (result != NULL)
		*result = answer;
	return answer == 0 ? info : NULL;
}

static struct fi_info *find_info(const struct side_options *options)
{
	struct fi_info *hints = vicinal_hints();

	hints->caps = options->caps;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->threading = options->threading;
	hints->domain_attr->data_progress = options->progress;
	hints->domain_attr->av_type = options->av_type;
	hints->tx_attr->op_flags = options->transmit_flags;
	hints->rx_attr->op_flags = options->receive_flags;
	hints->tx_attr->size = options->transmit_size;
	hints->tx_attr->msg_order = hints->rx_attr->msg_order = options->order;
	hints->domain_attr->mr_mode = options->mr_mode;
	int result = 0;
	struct fi_info *info = ask(options->version != 0 ? options->version : API, hints, &result);
	SAME(result, 0);
	CHECK(strcmp(info->fabric_attr->prov_name, "vicinal") == 0);
	SAME(info->tx_attr->op_flags, options->transmit_flags);
	SAME(info->rx_attr->op_flags, options->receive_flags);
	/*
	 * The provider needs no mode, so the info contains none. A domain keeps the modes that it is opened
	 * with.
	 */
	info->domain_attr->mr_mode = options->mr_mode;
	fi_freeinfo(hints);
	return info;
}

void side_prepare(struct side *side, int rank, const struct side_options *options)
{
	struct fi_cq_attr queue = {
		.size = options->queue_size,
		.format = options->format == FI_CQ_FORMAT_UNSPEC ? FI_CQ_FORMAT_TAGGED : options->format,
		.wait_obj = options->wait,
	};
	struct fi_av_attr vector = {.type = options->av_type};
	struct fi_cntr_attr counter = {.events = FI_CNTR_EVENTS_COMP};

	*side = (struct side){.rank = rank, .info = find_info(options)};
	SAME(fi_fabric(side->info->fabric_attr, &side->fabric, NULL), 0);
	SAME(fi_domain(side->fabric, side->info, &side->domain, NULL), 0);
	SAME(fi_av_open(side->domain, &vector, &side->av, NULL), 0);
	SAME(fi_cq_open(side->domain, &queue, &side->sent, NULL), 0);
	SAME(fi_cq_open(side->domain, &queue, &side->received, NULL), 0);
	if (options->counters) {
		SAME(fi_cntr_open(side->domain, &counter, &side->sent_count, NULL), 0);
		SAME(fi_cntr_open(side->domain, &counter, &side->received_count, NULL), 0);
	}
}

struct fid_ep *side_endpoint(const struct side *side, const struct side_options *options)
{
	struct fid_ep *endpoint = NULL;

	SAME(fi_endpoint(side->domain, side->info, &endpoint, NULL), 0);
	SAME(fi_ep_bind(endpoint, &side->av->fid, 0), 0);
	SAME(fi_ep_bind(endpoint, &side->sent->fid, FI_TRANSMIT | options->send_bind), 0);
	SAME(fi_ep_bind(endpoint, &side->received->fid, FI_RECV | options->receive_bind), 0);
	if (options->counters) {
		SAME(fi_ep_bind(endpoint, &side->sent_count->fid, FI_SEND), 0);
		SAME(fi_ep_bind(endpoint, &side->received_count->fid, FI_RECV), 0);
	}
	return endpoint;
}

void exchange_names(struct side *side)
{
	for (int i = 0; i < side->count; i++) {
		struct name *name = &common->names[side->rank][i];
		name->length = sizeof(name->bytes);
		SAME(fi_getname(&side->endpoints[i]->fid, name->bytes, &name->length), 0);
		CHECK(name->length > 0 && name->length <= NAME_MAX_BYTES);
	}
	barrier(NULL);
	for (int rank = 0; rank < ranks(); rank++)
		for (int i = 0; i < side->count; i++)
			SAME(fi_av_insert(side->av, common->names[rank][i].bytes, 1, &side->peers[rank][i], 0,
					  NULL),
			     1);
	for (int rank = 0; rank < ranks(); rank++)
		side->peer[rank] = side->peers[rank][0];
	barrier(NULL);
}

void side_open(struct side *side, int rank, const struct side_options *options)
{
	const struct side_options usual = {.endpoints = 1};

	if (options == NULL)
		options = &usual;
	side_prepare(side, rank, options);
	side->count = options->endpoints == 0 ? 1 : options->endpoints;
	for (int i = 0; i < side->count; i++) {
		side->endpoints[i] = side_endpoint(side, options);
		SAME(fi_enable(side->endpoints[i]), 0);
	}
	side->endpoint = side->endpoints[0];
	exchange_names(side);
}

void side_close_endpoints(struct side *side)
{
	for (int i = 0; i < side->count; i++)
		SAME(fi_close(&side->endpoints[i]->fid), 0);
	side->count = 0;
	side->endpoint = NULL;
}

void side_close(struct side *side)
{
	side_close_endpoints(side);
	if (side->sent_count != NULL) {
		SAME(fi_close(&side->sent_count->fid), 0);
		SAME(fi_close(&side->received_count->fid), 0);
	}
	SAME(fi_close(&side->sent->fid), 0);
	SAME(fi_close(&side->received->fid), 0);
	SAME(fi_close(&side->av->fid), 0);
	SAME(fi_close(&side->domain->fid), 0);
	SAME(fi_close(&side->fabric->fid), 0);
	fi_freeinfo(side->info);
}

void side_open_counting(struct side *side, int rank, const struct side_options *options,
			struct fid_cntr *counters[COUNTED])
{
	static const uint64_t flags[COUNTED] = {
		[COUNT_READ] = FI_READ,
		[COUNT_WRITE] = FI_WRITE,
		[COUNT_REMOTE_READ] = FI_REMOTE_READ,
		[COUNT_REMOTE_WRITE] = FI_REMOTE_WRITE,
	};

	side_prepare(side, rank, options);
	side->endpoint = side->endpoints[0] = side_endpoint(side, options);
	side->count = 1;
	for (int i = 0; i < COUNTED; i++) {
		SAME(fi_cntr_open(side->domain, NULL, &counters[i], NULL), 0);
		SAME(fi_ep_bind(side->endpoint, &counters[i]->fid, flags[i]), 0);
	}
	SAME(fi_enable(side->endpoint), 0);
	exchange_names(side);
}

void side_close_counting(struct side *side, struct fid_cntr *counters[COUNTED])
{
	side_close_endpoints(side);
	for (int i = 0; i < COUNTED; i++)
		SAME(fi_close(&counters[i]->fid), 0);
	side_close(side);
}

void side_progress(const struct side *side)
{
	/* No entry is requested, so none is taken. */
	(void)fi_cq_read(side->sent, NULL, 0);
	(void)fi_cq_read(side->received, NULL, 0);
}

/* ---- exposed memory ---- */

struct fid_mr *side_expose(struct side *side, void *buffer, size_t length, uint64_t access, uint64_t key)
{
	int mode = side->info->domain_attr->mr_mode;
	struct fid_mr *mr = NULL;

	SAME(fi_mr_reg(side->domain, buffer, length, access, 0, key, 0, &mr, NULL), 0);
	if (mode & FI_MR_ENDPOINT) {
		SAME(fi_mr_bind(mr, &side->endpoint->fid, 0), 0);
		SAME(fi_mr_enable(mr), 0);
	}
	if ((mode & FI_MR_PROV_KEY) == 0)
		SAME(fi_mr_key(mr), key);
	atomic_store(shared_word(2 * side->rank), (mode & FI_MR_VIRT_ADDR) != 0 ? (uintptr_t)buffer : 0);
	atomic_store(shared_word(2 * side->rank + 1), fi_mr_key(mr));
	return mr;
}

uint64_t exposed_address(int rank)
{
	return atomic_load(shared_word(2 * rank));
}

uint64_t exposed_key(int rank)
{
	return atomic_load(shared_word(2 * rank + 1));
}

/* ---- ranks ---- */

int ranks(void)
{
	return scenario_ranks;
}

void barrier(const struct side *side)
{
	uint32_t generation = atomic_load(&common->generation);

	if (atomic_fetch_add(&common->arrived, 1) + 1 == (uint32_t)scenario_ranks) {
		atomic_store(&common->arrived, 0);
		atomic_fetch_add(&common->generation, 1);
		return;
	}
	while (atomic_load(&common->generation) == generation) {
		if (side != NULL)
			side_progress(side);
		(void)sched_yield();
	}
}

_Atomic uint64_t *shared_word(int index)
{
	return &common->words[index];
}

/* ---- completions ---- */

struct fi_cq_tagged_entry next_completion_from(struct fid_cq *cq, fi_addr_t *source)
{
	struct fi_cq_tagged_entry entry = {0};
	struct fi_cq_err_entry error = {0};
	ssize_t result = 0;

	while ((result = fi_cq_readfrom(cq, &entry, 1, source)) == -FI_EAGAIN)
		;
	if (result == -FI_EAVAIL) {
		SAME(fi_cq_readerr(cq, &error, 0), 1);
		SAME(error.err, 0);
	}
	SAME(result, 1);
	return entry;
}

struct fi_cq_tagged_entry next_completion(struct fid_cq *cq)
{
	fi_addr_t source = 0;

	return next_completion_from(cq, &source);
}

struct fi_cq_err_entry next_error(struct fid_cq *cq)
{
	struct fi_cq_tagged_entry entry = {0};
	struct fi_cq_err_entry error = {0};
	ssize_t result = 0;

	while ((result = fi_cq_read(cq, &entry, 1)) == -FI_EAGAIN)
		;
	SAME(result, -FI_EAVAIL);
	SAME(fi_cq_readerr(cq, &error, 0), 1);
	CHECK(error.err > 0);
	return error;
}

void expect_completion(const struct side *side, const void *context, uint64_t flags)
{
	struct fi_cq_tagged_entry entry = next_completion(side->sent);

	CHECK(entry.op_context == context);
	SAME(entry.flags, flags);
}

void expect_error(const struct side *side, const void *context, int error)
{
	struct fi_cq_err_entry entry = next_error(side->sent);

	SAME(entry.err, error);
	CHECK(entry.op_context == context);
}

void expect_nothing(const struct side *side, struct fid_cq *cq)
{
	struct fi_cq_tagged_entry entry = {0};

	for (int i = 0; i < 300; i++) {
		side_progress(side);
		SAME(fi_cq_read(cq, &entry, 1), -FI_EAGAIN);
	}
}

/* ---- content ---- */

uint64_t next_random(uint64_t *state)
{
	uint64_t value = *state += UINT64_C(0x9e3779b97f4a7c15);

	value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
	return value ^ value >> 31;
}

void fill(void *buffer, size_t length, uint64_t seed)
{
	unsigned char *bytes = buffer;

	for (size_t i = 0; i < length; i++)
		bytes[i] = (unsigned char)(seed * 131 + i * 7 + (i >> 8) * 13 + (i >> 16) * 29);
}

void check_filled(const void *buffer, size_t length, uint64_t seed, const char *file, int line)
{
	const unsigned char *bytes = buffer;
	char text[128];

	for (size_t i = 0; i < length; i++) {
		unsigned char expected = (unsigned char)(seed * 131 + i * 7 + (i >> 8) * 13 + (i >> 16) * 29);
		if (bytes[i] == expected)
			continue;
		(void)snprintf(text, sizeof(text), "byte %zu of %zu is %u and should be %u", i, length,
			       bytes[i], expected);
		check_failed(file, line, text);
	}
}

const size_t edge_sizes[] = {
	0,    1,     2,     3,     7,     8,     15,    16,     31,     32,      33,
	40,   41,    47,    48,    49,    63,    64,    104,    105,    255,     256,
	423,  424,   425,   440,   441,   1000,  2048,  2049,   4095,   4096,    4097,
	8192, 12289, 16384, 16385, 65535, 65536, 65537, 100000, 262144, 1000003, 1048576,
};
const size_t edge_size_count = sizeof(edge_sizes) / sizeof(edge_sizes[0]);

/* ---- running ---- */

static const struct {
	const char *name;
	const struct scenario *scenarios;
} groups[] = {
	{"address", address_scenarios},
	{"atomic", atomic_scenarios},
	{"atomic_refused", atomic_refused_scenarios},
	{"beyond", beyond_scenarios},
	{"complete", complete_scenarios},
	{"counter", counter_scenarios},
	{"crowd", crowd_scenarios},
	{"descriptor", descriptor_scenarios},
	{"direct", direct_scenarios},
	{"ended", ended_scenarios},
	{"fork", fork_scenarios},
	{"heap", heap_scenarios},
	{"info", info_scenarios},
	{"late", late_scenarios},
	{"leaks", leaks_scenarios},
	{"input", input_scenarios},
	{"event", event_scenarios},
	{"match", match_scenarios},
	{"misuse", misuse_scenarios},
	{"mr", mr_scenarios},
	{"multiple", multiple_scenarios},
	{"order", order_scenarios},
	{"rma", rma_scenarios},
	{"rma_refused", rma_refused_scenarios},
	{"send", send_scenarios},
	{"several", several_scenarios},
	{"thread", thread_scenarios},
	{"wait", wait_scenarios},
};

static void run_rank(const struct scenario *scenario, int rank, pid_t parent)
{
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	own_rank = rank;
	(void)alarm(GUARD_SECONDS);
	scenario->run(rank);
	exit(0); /* not _exit(): sanitizers report at the end */
}

static bool run_scenario(const struct scenario *scenario)
{
	pid_t children[RANKS_MAX];
	pid_t parent = getpid();
	bool good = true;

	scenario_name = scenario->name;
	scenario_ranks = scenario->ranks;
	memset((void *)common, 0, sizeof(*common));
	(void)fflush(NULL);
	for (int rank = 0; rank < scenario->ranks; rank++) {
		children[rank] = fork();
		if (children[rank] == 0)
			run_rank(scenario, rank, parent);
	}
	for (int left = scenario->ranks; left > 0; left--) {
		int status = 0;
		pid_t ended = wait(&status);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
			continue;
		for (int rank = 0; rank < scenario->ranks; rank++) {
			if (children[rank] == ended && good)
				(void)fprintf(stderr, "FAILED %s: rank %d ended with %s %d\n", scenario->name,
					      rank, WIFSIGNALED(status) ? "signal" : "status",
					      WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
			if (children[rank] != ended)
				(void)kill(children[rank], SIGKILL);
		}
		good = false;
	}
	if (good)
		(void)printf("ok %s\n", scenario->name);
	return good;
}

int main(int argc, char **argv)
{
	bool good = true;
	int found = 0;

	common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (common == MAP_FAILED || argc < 2 || argc > 3) {
		(void)fprintf(stderr, "usage: api GROUP [SCENARIO]\n");
		return 2;
	}
	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		for (const struct scenario *each = groups[i].scenarios; each->name != NULL; each++)
			if (strcmp(argv[1], groups[i].name) == 0 &&
			    (argc == 2 || strcmp(argv[2], each->name) == 0)) {
				found++;
				good = run_scenario(each) && good;
			}
	if (found == 0)
		(void)fprintf(stderr, "api: no such scenario\n");
	return good && found > 0 ? 0 : 1;
}
