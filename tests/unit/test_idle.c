/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank that reads in a loop and finds nothing sleeps only if it does nothing else. The provider decides by
 * times. Here the test controls the clocks, and the duration of each poll of the endpoint.
 */
#include "world.h"

#include <time.h>

#include "api/provider.h"

#define SECOND UINT64_C(1000000000)
#define MICROSECOND UINT64_C(1000)
#define MILLISECOND (1000 * MICROSECOND)
/* Enough reads to reach a sleep, if the rank sleeps at all. */
#define READS 200U

static uint64_t clock_shows; /* the time on all clocks, without the time of other threads */
static uint64_t others_had;
static uint64_t poll_takes;
static uint32_t sleeps;
static bool clock_is_ours;

int __real_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
uint32_t __wrap_messenger_progress(struct messenger *messenger);
uint32_t __wrap_domain_progress_full(struct domain *domain);
enum sleep_end __wrap_sleep_until(const struct sleep_watch *watch, uint64_t deadline);

int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
	if (!clock_is_ours)
		return __real_clock_gettime(clock, time);
	uint64_t shows = clock_shows + (clock == CLOCK_THREAD_CPUTIME_ID ? 0 : others_had);
	*time = (struct timespec){(time_t)(shows / SECOND), (long)(shows % SECOND)};
	return 0;
}

uint32_t __wrap_messenger_progress(struct messenger *messenger)
{
	(void)messenger;
	clock_shows += poll_takes;
	return 0;
}

/* Between sleeps a read polls the whole domain. */
uint32_t __wrap_domain_progress_full(struct domain *domain)
{
	(void)domain;
	clock_shows += poll_takes;
	return 0;
}

enum sleep_end __wrap_sleep_until(const struct sleep_watch *watch, uint64_t deadline)
{
	(void)watch;
	sleeps++;
	if (deadline > clock_shows + others_had)
		others_had = deadline - clock_shows;
	return SLEEP_ELAPSED;
}

static struct messenger messenger;
static struct endpoint endpoint = {.messenger = &messenger};
static struct domain domain;
static struct fid_cq *queue;

static int queue_open(void **state)
{
	struct fi_cq_attr attributes = {.format = FI_CQ_FORMAT_TAGGED, .size = 64};

	(void)state;
	if (cq_open(&domain.fid, &attributes, &queue, NULL) != 0)
		return -1;
	clock_shows = SECOND;
	clock_is_ours = true;
	return endpoint_list_add(&((struct cq *)(void *)queue)->endpoints, &endpoint);
}

static int queue_close(void **state)
{
	(void)state;
	clock_is_ours = false;
	domain_sleep_disarm(&domain);
	return fi_close(&queue->fid);
}

/*
 * Returns the number of sleeps of a rank that reads repeatedly. Before each read the rank works for `work`,
 * and loses its core for `lost`.
 */
static uint32_t sleeps_with(enum progress_mode mode, uint64_t poll, uint64_t work, uint64_t lost)
{
	struct fi_cq_tagged_entry entry;

	domain.mode = mode;
	domain.thresholds = (struct thresholds){.reads_before_yield = UINT32_MAX, .reads_before_sleep = 10};
	poll_takes = poll;
	sleeps = 0;
	for (uint32_t i = 0; i < READS; i++) {
		clock_shows += work;
		others_had += lost;
		assert_int_equal(fi_cq_read(queue, &entry, 1), -FI_EAGAIN);
	}
	return sleeps;
}

static const enum progress_mode sleeping[] = {PROGRESS_BLOCK, PROGRESS_ADAPTIVE};

static void waiting_ends_in_sleeps(void **state)
{
	(void)state;
	for (size_t i = 0; i < 2; i++)
		assert_true(sleeps_with(sleeping[i], 0, MICROSECOND, 0) > READS / 2);
	assert_int_equal(sleeps_with(PROGRESS_POLL, 0, MICROSECOND, 0), 0);
}

/* The time of a poll, for example of the network, is the provider's own: the rank still waits. */
static void a_long_poll_is_no_work(void **state)
{
	(void)state;
	for (size_t i = 0; i < 2; i++)
		assert_true(sleeps_with(sleeping[i], 30 * MICROSECOND, MICROSECOND, 0) > READS / 2);
}

/* An MPI library yields before each read. Other threads run, and the return finds cold caches. */
static void a_rank_that_loses_its_core_waits(void **state)
{
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		assert_true(sleeps_with(sleeping[i], 12 * MICROSECOND, 18 * MICROSECOND, 4 * MILLISECOND) >
			    READS / 2);
		assert_true(sleeps_with(sleeping[i], 12 * MICROSECOND, 60 * MICROSECOND, 4 * MILLISECOND) >
			    READS / 2);
		assert_true(sleeps_with(sleeping[i], 2 * MICROSECOND, 7 * MICROSECOND, 25 * MICROSECOND) >
			    READS / 2);
	}
}

static void a_rank_that_works_is_not_kept_from_it(void **state)
{
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(sleeps_with(sleeping[i], MICROSECOND, 5 * MICROSECOND, 0), 0);
		assert_int_equal(sleeps_with(sleeping[i], MICROSECOND, 25 * MICROSECOND, 25 * MICROSECOND),
				 0);
		assert_int_equal(sleeps_with(sleeping[i], MICROSECOND, MILLISECOND, 4 * MILLISECOND), 0);
		assert_int_equal(sleeps_with(sleeping[i], MICROSECOND, 10 * MILLISECOND, 10 * MILLISECOND),
				 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(waiting_ends_in_sleeps, queue_open, queue_close),
		cmocka_unit_test_setup_teardown(a_long_poll_is_no_work, queue_open, queue_close),
		cmocka_unit_test_setup_teardown(a_rank_that_loses_its_core_waits, queue_open, queue_close),
		cmocka_unit_test_setup_teardown(a_rank_that_works_is_not_kept_from_it, queue_open,
						queue_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
