/* SPDX-License-Identifier: BSD-3-Clause */
/* Membership: joining, leaving, proving who is there, and taking the slots of dead members. */
#include "region/route.h"
#include "world.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MEMBERS 4U
#define SECOND UINT64_C(1000000000)
#define HOUR (3600 * SECOND) /* longer than any test run */

static struct region *region;

static int open_region(void **state)
{
	(void)state;
	region = world_region(MEMBERS, REGION_SECTION_MIN);
	return 0;
}

static int close_region(void **state)
{
	(void)state;
	region_detach(region);
	return 0;
}

static struct member *join(void)
{
	struct member *member = NULL;
	struct region_error error;

	if (member_join(region, 3, SECOND, &member, &error) != 0)
		fail_msg("%s", error.text);
	return member;
}

static enum member_state observe(const struct member *self, uint32_t slot, uint32_t epoch)
{
	struct last_heartbeat last_heartbeat = {0};

	return member_observe(self, slot, epoch, &last_heartbeat, monotonic_now(), SECOND);
}

/* A child joins and is killed while it is a member. Returns its slot. */
static uint32_t join_and_be_killed(uint32_t *epoch, uint64_t *nonce)
{
	int ends[2];
	uint64_t told[3];
	int status = 0;

	assert_int_equal(pipe(ends), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct member *member = join();
		const uint64_t tell[3] = {member->slot, member->epoch, member->nonce};
		(void)!write(ends[1], tell, sizeof(tell));
		for (;;)
			(void)pause();
	}
	assert_int_equal(read(ends[0], told, sizeof(told)), sizeof(told));
	assert_int_equal(close(ends[0]), 0);
	assert_int_equal(close(ends[1]), 0);
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	*epoch = (uint32_t)told[1];
	*nonce = told[2];
	return (uint32_t)told[0];
}

static void test_a_member_shows_who_it_is(void **state)
{
	struct member *member = join();
	uint32_t epoch = 0;
	uint64_t nonce = 0;

	(void)state;
	assert_true(member_is_joined(member));
	assert_true(member_identify(region, member->slot, &epoch, &nonce));
	assert_int_equal(epoch, member->epoch);
	assert_int_equal(nonce, member->nonce);
	const struct section_header *header = section_header(region, member->slot);
	assert_int_equal(shared_load_u32(&header->epoch), epoch);
	assert_int_equal(shared_load_u32(&header->pid), (uint32_t)getpid());
	assert_int_equal(shared_load_u32(&header->endpoint), 3);
	assert_int_equal(shared_load_u32(&header->liveness), LIVENESS_LOCK);
	assert_true(member_confirm(region, member->slot, epoch, nonce));
	assert_false(member_confirm(region, member->slot, epoch + 1, nonce));
	assert_false(member_confirm(region, member->slot, epoch, nonce + 1));
	assert_false(member_confirm(region, MEMBERS, epoch, nonce));
	assert_false(member_confirm(region, UINT32_MAX, epoch, nonce));
	for (uint32_t slot = 0; slot < MEMBERS; slot++)
		if (slot != member->slot)
			assert_false(member_identify(region, slot, &epoch, &nonce));
	member_leave(member);
}

static void test_a_rank_is_what_the_launcher_says(void **state)
{
	static const struct {
		const char *variable;
		const char *value;
		uint32_t rank;
	} cases[] = {
		{"VICINAL_RANK", "5", 5},       {"PMIX_RANK", "17", 17},
		{"PMI_RANK", "3", 3},           {"OMPI_COMM_WORLD_RANK", "2", 2},
		{"PMI_RANK", "", UINT32_MAX},   {"PMI_RANK", "three", UINT32_MAX},
		{"PMI_RANK", "7x", UINT32_MAX}, {"PMI_RANK", "99999999999", UINT32_MAX},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(setenv(cases[i].variable, cases[i].value, 1), 0);
		struct member *member = join();
		assert_int_equal(shared_load_u32(&section_header(region, member->slot)->rank), cases[i].rank);
		member_leave(member);
		assert_int_equal(unsetenv(cases[i].variable), 0);
	}
}

static void test_a_job_is_the_number_in_its_variable(void **state)
{
	static const struct {
		const char *value;
		uint32_t job;
	} cases[] = {{"71", 71}, {"4294967294", UINT32_MAX - 1}, {"", 0}, {"x", 0}, {"7 ", 0}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(setenv("VICINAL_JOB", cases[i].value, 1), 0);
		struct member *member = join();
		assert_int_equal(shared_load_u32(&section_header(region, member->slot)->job), cases[i].job);
		member_leave(member);
	}
	assert_int_equal(unsetenv("VICINAL_JOB"), 0);
}

static void test_a_full_region_is_refused_until_one_leaves(void **state)
{
	struct member *members[MEMBERS];
	struct member *late = NULL;
	struct region_error error = {""};

	(void)state;
	for (uint32_t i = 0; i < MEMBERS; i++) {
		members[i] = join();
		for (uint32_t j = 0; j < i; j++)
			assert_int_not_equal(members[i]->slot, members[j]->slot);
	}
	assert_int_equal(member_join(region, 0, SECOND, &late, &error), -ENOSPC);
	assert_non_null(strstr(error.text, "is full"));
	uint32_t slot = members[2]->slot;
	uint32_t epoch = members[2]->epoch;
	member_leave(members[2]);
	members[2] = join();
	assert_int_equal(members[2]->slot, slot);
	assert_int_equal(members[2]->epoch, epoch + 1);
	for (uint32_t i = 0; i < MEMBERS; i++)
		member_leave(members[i]);
}

/* A member's last messages can be read for as long as possible: a free slot is not used again at once. */
static void test_the_slot_freed_longest_ago_is_taken(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 3 * MEMBERS; i++) {
		struct member *member = join();
		assert_int_equal(member->slot, i % MEMBERS);
		assert_int_equal(member->epoch, i / MEMBERS + 1);
		member_leave(member);
	}
}

static void test_leaving_is_seen_and_does_not_look_like_dying(void **state)
{
	struct member *watcher = join();
	struct member *other = join();
	uint32_t slot = other->slot;
	uint32_t epoch = other->epoch;

	(void)state;
	assert_int_equal(observe(watcher, slot, epoch), MEMBER_ALIVE);
	assert_int_equal(observe(watcher, watcher->slot, watcher->epoch), MEMBER_ALIVE);
	member_leave(other);
	assert_int_equal(observe(watcher, slot, epoch), MEMBER_LEFT);
	/* The next occupant of the slot is another member. */
	struct member *successor = join();
	while (successor->slot != slot) {
		member_leave(successor);
		successor = join();
	}
	assert_int_equal(observe(watcher, slot, epoch), MEMBER_DIED);
	assert_int_equal(observe(watcher, slot, successor->epoch), MEMBER_ALIVE);
	member_leave(successor);
	member_leave(watcher);
}

/* Newcomers look for it in the network, whatever the manager requested after it had left. */
static void test_one_that_left_for_the_network_is_known_as_such(void **state)
{
	static const struct {
		enum requested_route route;
		bool departed;
	} cases[] = {{ROUTE_REGION, false},
		     {ROUTE_NETWORK, true},
		     {ROUTE_LEAVE, true},
		     {ROUTE_RETURN, true},
		     {9, false}};
	struct member *member = join();
	uint32_t slot = member->slot;
	uint32_t epoch = member->epoch;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		shared_store_u64(&region_slot(region, slot)->requested_route,
				 (uint64_t)epoch << 32 | cases[i].route);
		assert_false(member_departed(region, slot, epoch));
	}
	member_leave(member);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		shared_store_u64(&region_slot(region, slot)->requested_route,
				 (uint64_t)epoch << 32 | cases[i].route);
		assert_int_equal(member_departed(region, slot, epoch), cases[i].departed);
		shared_store_u64(&region_slot(region, slot)->requested_route,
				 (uint64_t)(epoch + 1) << 32 | cases[i].route);
		assert_false(member_departed(region, slot, epoch));
	}
}

static void test_a_killed_member_is_dead_and_its_slot_free_to_take(void **state)
{
	struct member *members[MEMBERS - 1];
	uint32_t epoch = 0;
	uint64_t nonce = 0;

	(void)state;
	for (uint32_t i = 0; i < MEMBERS - 1; i++)
		members[i] = join();
	uint32_t slot = join_and_be_killed(&epoch, &nonce);
	assert_int_equal(observe(members[0], slot, epoch), MEMBER_DIED);
	assert_true(member_confirm(region, slot, epoch, nonce));
	/* Living members have all other slots. */
	struct member *heir = join();
	assert_int_equal(heir->slot, slot);
	assert_int_equal(heir->epoch, epoch + 1);
	assert_false(member_confirm(region, slot, epoch, nonce));
	assert_int_equal(observe(members[0], slot, heir->epoch), MEMBER_ALIVE);
	member_leave(heir);
	for (uint32_t i = 0; i < MEMBERS - 1; i++)
		member_leave(members[i]);
}

static void test_the_managers_verdict_counts(void **state)
{
	struct member *watcher = join();
	struct member *other = join();

	(void)state;
	struct member_verdict *verdict = region_verdict(region, other->slot);
	shared_store_u64(&verdict->verdict, (uint64_t)(other->epoch + 1) << 32 | 1);
	assert_int_equal(observe(watcher, other->slot, other->epoch), MEMBER_ALIVE);
	shared_store_u64(&verdict->verdict, (uint64_t)other->epoch << 32 | 1);
	assert_int_equal(observe(watcher, other->slot, other->epoch), MEMBER_DIED);
	member_leave(other);
	member_leave(watcher);
}

static void test_a_heartbeat_is_timed_by_its_observer(void **state)
{
	struct member *watcher = join();
	struct member *other = join();
	struct section_header *header = section_header(region, other->slot);
	struct last_heartbeat last_heartbeat = {0};
	uint64_t now = 1000 * SECOND;

	(void)state;
	shared_store_u32(&header->liveness, LIVENESS_HEARTBEAT);
	shared_store_u64(&header->heartbeat, 1);
	assert_int_equal(member_observe(watcher, other->slot, other->epoch, &last_heartbeat, now, SECOND),
			 MEMBER_ALIVE);
	now += SECOND; /* still for exactly the timeout */
	assert_int_equal(member_observe(watcher, other->slot, other->epoch, &last_heartbeat, now, SECOND),
			 MEMBER_ALIVE);
	assert_int_equal(member_observe(watcher, other->slot, other->epoch, &last_heartbeat, now + 1, SECOND),
			 MEMBER_DIED);
	shared_store_u64(&header->heartbeat, 0); /* any change means life, even backwards */
	assert_int_equal(member_observe(watcher, other->slot, other->epoch, &last_heartbeat, now + 2, SECOND),
			 MEMBER_ALIVE);
	member_leave(other);
	member_leave(watcher);
}

/* ---- a full region between guests, where there are no locks ---- */

static struct member *beating[MEMBERS];
static char noticed[512];
static uint32_t notices;

static void notice(const char *text)
{
	(void)snprintf(noticed, sizeof(noticed), "%s", text);
	notices++;
}

static int open_full_region(void **state)
{
	(void)open_region(state);
	region->kind = REGION_PCI;
	region->notice = notice;
	notices = 0;
	for (uint32_t i = 0; i < MEMBERS; i++)
		beating[i] = join();
	return 0;
}

static int close_full_region(void **state)
{
	/* Stop all heartbeat threads first: each ends at its next beat. */
	for (uint32_t i = 0; i < MEMBERS; i++)
		atomic_store(&beating[i]->stop, true);
	for (uint32_t i = 0; i < MEMBERS; i++)
		member_leave(beating[i]);
	return close_region(state);
}

/* It ends as if its guest was destroyed, without telling anyone. */
static uint32_t destroy(struct member *member)
{
	uint32_t slot = member->slot;

	atomic_store(&member->stop, true);
	assert_int_equal(pthread_join(member->heart, NULL), 0);
	member->beating = false;
	member->process = 0;
	member_leave(member);
	return slot;
}

static void ignore(int number)
{
	(void)number;
}

/* Signals end a pause early. They must not make a member look dead. */
static void interrupt_every(suseconds_t microseconds)
{
	const struct sigaction action = {.sa_handler = ignore};
	const struct itimerval timer = {{.tv_usec = microseconds}, {.tv_usec = microseconds}};

	assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &timer, NULL), 0);
}

static void test_a_slot_whose_heart_stands_still_is_taken(void **state)
{
	uint32_t slot = destroy(beating[1]);
	uint64_t began = monotonic_now();

	(void)state;
	interrupt_every(20000);
	beating[1] = join();
	interrupt_every(0);
	assert_int_equal(beating[1]->slot, slot);
	assert_true(monotonic_now() - began > SECOND);
	/* A member that waits is told once, and why. */
	assert_int_equal(notices, 1);
	assert_non_null(strstr(noticed, " of its 4 members show no life: waiting up to 1.0 s"));
}

static void test_nobody_waits_for_the_living(void **state)
{
	struct member *late = NULL;
	struct region_error error = {""};

	(void)state;
	/* If it waited, the time limit of the test run would end the program. */
	assert_int_equal(member_join(region, 0, HOUR, &late, &error), -ENOSPC);
	assert_non_null(strstr(error.text, "is full"));
}

static void *leave_soon(void *argument)
{
	const struct timespec pause = {.tv_nsec = 150000000};

	(void)nanosleep(&pause, NULL);
	member_leave(argument);
	return NULL;
}

static void test_a_slot_that_becomes_free_meanwhile_is_taken(void **state)
{
	pthread_t leaving;
	uint32_t slot = beating[2]->slot;

	(void)state;
	/* A dead member, for which the newcomer waits. */
	uint32_t dead = destroy(beating[0]);
	assert_int_equal(pthread_create(&leaving, NULL, leave_soon, beating[2]), 0);
	struct region_error error;
	if (member_join(region, 0, HOUR, &beating[2], &error) != 0)
		fail_msg("%s", error.text);
	assert_int_equal(pthread_join(leaving, NULL), 0);
	assert_int_equal(beating[2]->slot, slot); /* not the dead one's after an hour */
	/* The manager's verdict makes it unnecessary to wait for the other. */
	struct member_verdict *verdict = region_verdict(region, dead);
	shared_store_u64(&verdict->verdict, UINT64_C(1) << 32 | 1);
	beating[0] = join();
	assert_int_equal(beating[0]->slot, dead);
}

/* A child of fork() has its parent's memory, and must not leave on its behalf. */
static void test_a_forked_child_does_not_leave_for_its_parent(void **state)
{
	struct member *member = join();
	int status = 0;

	(void)state;
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		member_leave(member);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_true(member_is_joined(member));
	member_leave(member);
}

/* A member that was taken for dead while it was paused must not undo its successor's claim. */
static void test_one_who_was_replaced_leaves_without_a_trace(void **state)
{
	struct member *paused = join();
	uint64_t successor = (uint64_t)(paused->epoch + 1) << 32 | SLOT_JOINED;
	uint32_t slot = paused->slot;

	(void)state;
	shared_store_u64(&region_slot(region, slot)->claim, successor);
	assert_false(member_is_joined(paused));
	member_leave(paused);
	assert_int_equal(shared_load_u64(&region_slot(region, slot)->claim), successor);
}

/* Epochs count up without end, and skip the one value that no peer would take for a member's. */
static void test_the_epoch_after_the_last_is_a_member_s(void **state)
{
	uint32_t epoch = 0;
	uint64_t nonce = 0;

	(void)state;
	for (uint32_t slot = 0; slot < MEMBERS; slot++)
		shared_store_u64(&region_slot(region, slot)->claim, (uint64_t)UINT32_MAX << 32 | SLOT_FREE);
	struct member *member = join();
	assert_true(member_identify(region, member->slot, &epoch, &nonce));
	assert_int_equal(epoch, 1);
	member_leave(member);
}

#define WITH_REGION(name) cmocka_unit_test_setup_teardown(name, open_region, close_region)
#define WITH_FULL_REGION(name) cmocka_unit_test_setup_teardown(name, open_full_region, close_full_region)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_REGION(test_a_member_shows_who_it_is),
		WITH_REGION(test_a_rank_is_what_the_launcher_says),
		WITH_REGION(test_a_job_is_the_number_in_its_variable),
		WITH_REGION(test_a_full_region_is_refused_until_one_leaves),
		WITH_REGION(test_the_slot_freed_longest_ago_is_taken),
		WITH_REGION(test_the_epoch_after_the_last_is_a_member_s),
		WITH_REGION(test_leaving_is_seen_and_does_not_look_like_dying),
		WITH_REGION(test_one_that_left_for_the_network_is_known_as_such),
		WITH_REGION(test_a_killed_member_is_dead_and_its_slot_free_to_take),
		WITH_REGION(test_the_managers_verdict_counts),
		WITH_REGION(test_a_heartbeat_is_timed_by_its_observer),
		WITH_FULL_REGION(test_a_slot_whose_heart_stands_still_is_taken),
		WITH_FULL_REGION(test_nobody_waits_for_the_living),
		WITH_FULL_REGION(test_a_slot_that_becomes_free_meanwhile_is_taken),
		WITH_REGION(test_a_forked_child_does_not_leave_for_its_parent),
		WITH_REGION(test_one_who_was_replaced_leaves_without_a_trace),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
