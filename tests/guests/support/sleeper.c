/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sleeper.c - only libfabric, between two guests: one sends a message now and then and waits for the
 * answer, the other waits for messages. Both block in fi_cq_sread() while they wait.
 *
 *	sleeper sleep PORT ROUNDS           sleeper wake HOST PORT ROUNDS MILLISECONDS
 *
 * They exchange their addresses by TCP. After the first message, which does not count, the sleeper
 * counts its processor time, how often it gave up its processor, and the interrupts of the region's
 * device. The waker times from each message to the answer.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NAME_BYTES 64
#define PATIENCE_MILLISECONDS 60000

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_cq *cq;
static struct fid_ep *endpoint;
static fi_addr_t other;
static char in[8], out[8];

static void check(long result, const char *what)
{
	if (result >= 0)
		return;
	fprintf(stderr, "sleeper: error: %s: %s\n", what, fi_strerror((int)-result));
	exit(1);
}

static void open_endpoint(void)
{
	struct fi_info *hints = fi_allocinfo();
	struct fi_cq_attr queue = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_UNSPEC};
	struct fi_av_attr vector = {.type = FI_AV_TABLE};

	hints->caps = FI_MSG;
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = strdup("vicinal");
	check(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), "fi_getinfo");
	check(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
	check(fi_domain(fabric, info, &domain, NULL), "fi_domain");
	check(fi_av_open(domain, &vector, &av, NULL), "fi_av_open");
	check(fi_cq_open(domain, &queue, &cq, NULL), "fi_cq_open");
	check(fi_endpoint(domain, info, &endpoint, NULL), "fi_endpoint");
	check(fi_ep_bind(endpoint, &av->fid, 0), "fi_ep_bind");
	check(fi_ep_bind(endpoint, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
	check(fi_enable(endpoint), "fi_enable");
}

static int await_connection(int port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
	check(bind(listener, (struct sockaddr *)&address, sizeof(address)) ? -FI_EADDRINUSE : 0, "bind");
	check(listen(listener, 1) ? -FI_EOTHER : 0, "listen");
	int connection = accept(listener, NULL, NULL);
	close(listener);
	return connection;
}

static int make_connection(const char *host, int port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

	inet_pton(AF_INET, host, &address.sin_addr);
	for (int tries = 0; tries < 600; tries++) {
		int connection = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(connection, (struct sockaddr *)&address, sizeof(address)) == 0)
			return connection;
		close(connection);
		usleep(100000);
	}
	check(-FI_ECONNREFUSED, "connect");
	return -1;
}

static void exchange_names(int connection)
{
	char name[NAME_BYTES] = "", theirs[NAME_BYTES] = "";
	size_t length = sizeof(name);

	check(fi_getname(&endpoint->fid, name, &length), "fi_getname");
	check(write(connection, name, sizeof(name)) == sizeof(name) ? 0 : -FI_EIO, "write");
	check(recv(connection, theirs, sizeof(theirs), MSG_WAITALL) == sizeof(theirs) ? 0 : -FI_EIO, "recv");
	check(fi_av_insert(av, theirs, 1, &other, 0, NULL) - 1, "fi_av_insert");
}

static void post(void)
{
	check(fi_recv(endpoint, in, sizeof(in), NULL, other, in), "fi_recv");
}

/* Wait until the posted receive is done. */
static void await_message(void)
{
	struct fi_cq_entry entry = {0};

	while (entry.op_context != in)
		check(fi_cq_sread(cq, &entry, 1, NULL, PATIENCE_MILLISECONDS), "fi_cq_sread");
}

static void send_one(void)
{
	ssize_t result;

	while ((result = fi_inject(endpoint, out, sizeof(out), other)) == -FI_EAGAIN)
		(void)fi_cq_read(cq, NULL, 0);
	check(result, "fi_inject");
}

static double microseconds(const struct timeval *time)
{
	return (double)time->tv_sec * 1e6 + (double)time->tv_usec;
}

/* Interrupts of the region's device, by all used vectors, in the column of the only processor. */
static long count_interrupts(void)
{
	FILE *file = fopen("/proc/interrupts", "re");
	char line[512];
	long total = 0;

	check(file == NULL ? -FI_EIO : 0, "/proc/interrupts");
	while (fgets(line, sizeof(line), file) != NULL)
		if (strstr(line, "vfio-msix") != NULL)
			total += atol(strchr(line, ':') + 1);
	fclose(file);
	return total;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static void be_sleeper(int rounds)
{
	struct rusage before = {0}, after;
	double began = 0;
	long interrupts = 0;

	for (int round = 0; round < rounds; round++) {
		await_message();
		post();
		send_one();
		if (round == 0) {
			getrusage(RUSAGE_SELF, &before);
			began = now();
			interrupts = count_interrupts();
		}
	}
	getrusage(RUSAGE_SELF, &after);
	double processor = microseconds(&after.ru_utime) + microseconds(&after.ru_stime) -
			   microseconds(&before.ru_utime) - microseconds(&before.ru_stime);
	printf("{\"seconds\": %.3f, \"processor_seconds\": %.3f, \"switches\": %ld, \"interrupts\": %ld}\n",
	       (now() - began) / 1e6, processor / 1e6, after.ru_nvcsw - before.ru_nvcsw,
	       count_interrupts() - interrupts);
}

static void be_waker(int rounds, int milliseconds)
{
	printf("{\"microseconds\": [");
	for (int round = 0; round < rounds; round++) {
		/* Not in step with a sleeper that polls periodically. */
		usleep((useconds_t)(milliseconds * 1000 + round * 137 % 1000));
		double began = now();
		send_one();
		await_message();
		if (round > 0)
			printf("%s%.1f", round > 1 ? ", " : "", now() - began);
		post();
	}
	printf("]}\n");
}

int main(int count, char **arguments)
{
	int sleeps = count == 4 && strcmp(arguments[1], "sleep") == 0;

	if (!sleeps && !(count == 6 && strcmp(arguments[1], "wake") == 0)) {
		fprintf(stderr, "sleeper: error: call it as the top of sleeper.c says\n");
		return 2;
	}
	open_endpoint();
	int connection = sleeps ? await_connection(atoi(arguments[2]))
				: make_connection(arguments[2], atoi(arguments[3]));
	exchange_names(connection);
	post();
	/* Both sides have posted. */
	check(write(connection, "", 1) == 1 && read(connection, in, 1) == 1 ? 0 : -FI_EIO, "write");
	if (sleeps)
		be_sleeper(atoi(arguments[3]));
	else
		be_waker(atoi(arguments[4]), atoi(arguments[5]));
	fflush(stdout);
	/* Neither side leaves before the other is done. */
	check(write(connection, "", 1) == 1 && read(connection, in, 1) == 1 ? 0 : -FI_EIO, "write");
	fi_close(&endpoint->fid);
	fi_close(&cq->fid);
	fi_close(&av->fid);
	fi_close(&domain->fid);
	fi_close(&fabric->fid);
	fi_freeinfo(info);
	return 0;
}
