/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_doorbell.c - see fake_doorbell.h. */
#include "fake_doorbell.h"

#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "guest/agent/interrupts.h"
#include "region/member.h"

/* The offset of the device's BAR 0 in its page: a BAR need not begin with a page. */
#define OFFSET 256U
/* Only a limit against hanging. The agent needs microseconds. */
#define PATIENCE_NANOSECONDS UINT64_C(60000000000)

char fake_socket[64];

/* Shared by the test's process and the agent's process, beside the register. */
struct observed {
	atomic_bool held;
	atomic_uint rings;
	atomic_uint last;
};

static struct device device;
static struct observed *observed;
static pid_t agent;
static unsigned char *registers;
static _Atomic uint32_t *doorbell_register;
/* Shared by the agent's thread and the thread that plays the device. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int eventfds[FAKE_VECTORS];

/* ---- the agent's process ---- */

int device_deliver(const struct device *ignored, uint32_t vector, int descriptor)
{
	(void)ignored;
	(void)pthread_mutex_lock(&mutex);
	if (eventfds[vector] >= 0)
		(void)close(eventfds[vector]);
	eventfds[vector] = descriptor < 0 ? -1 : dup(descriptor);
	(void)pthread_mutex_unlock(&mutex);
	return 0;
}

static void interrupt(uint32_t word)
{
	(void)pthread_mutex_lock(&mutex);
	if (word >> 16 == FAKE_GUEST && (word & 0xffff) < FAKE_VECTORS && eventfds[word & 0xffff] >= 0)
		(void)!write(eventfds[word & 0xffff], &(uint64_t){1}, sizeof(uint64_t));
	(void)pthread_mutex_unlock(&mutex);
	atomic_store(&observed->last, word);
	atomic_fetch_add(&observed->rings, 1);
}

static void *carry(void *argument)
{
	const struct timespec pause = {.tv_nsec = 20000};

	(void)argument;
	for (;;) {
		uint32_t word = atomic_load(&observed->held) ? 0 : atomic_exchange(doorbell_register, 0);
		if (word != 0)
			interrupt(word);
		else
			(void)nanosleep(&pause, NULL);
	}
	return NULL;
}

static __attribute__((noreturn)) void be_agent(int listener)
{
	pthread_t wire;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (uint32_t vector = 0; vector < FAKE_VECTORS; vector++)
		eventfds[vector] = -1;
	if (pthread_create(&wire, NULL, carry, NULL) != 0)
		_exit(1);
	grant_interrupts(&device, listener);
}

/* ---- the test's process ---- */

static int listen_at_socket(void)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};

	(void)snprintf(fake_socket, sizeof(fake_socket), "/tmp/vicinal-test-doorbell-%d", (int)getpid());
	(void)snprintf(name.sun_path, sizeof(name.sun_path), "%s", fake_socket);
	(void)unlink(fake_socket);
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
	assert_true(listener >= 0);
	assert_int_equal(bind(listener, (const struct sockaddr *)&name, sizeof(name)), 0);
	assert_int_equal(listen(listener, 8), 0);
	return listener;
}

void fake_doorbell_open(void)
{
	device = (struct device){.offset = OFFSET, .vectors = FAKE_VECTORS, .guest = FAKE_GUEST};
	device.registers = memfd_create("vicinal-registers", 0);
	assert_true(device.registers >= 0);
	assert_int_equal(ftruncate(device.registers, REGION_PAGE), 0);
	registers = mmap(NULL, REGION_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, device.registers, 0);
	assert_ptr_not_equal(registers, MAP_FAILED);
	doorbell_register = (_Atomic uint32_t *)(void *)(registers + OFFSET + DEVICE_DOORBELL);
	observed = mmap(NULL, sizeof(*observed), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(observed, MAP_FAILED);
	int listener = listen_at_socket();
	agent = fork();
	assert_true(agent >= 0);
	if (agent == 0)
		be_agent(listener);
	(void)close(listener);
}

void fake_doorbell_end(void)
{
	if (agent <= 0)
		return;
	assert_int_equal(kill(agent, SIGKILL), 0);
	assert_int_equal(waitpid(agent, NULL, 0), agent);
	(void)unlink(fake_socket);
	agent = 0;
}

void fake_doorbell_close(void)
{
	fake_doorbell_end();
	(void)munmap(registers, REGION_PAGE);
	(void)munmap(observed, sizeof(*observed));
	(void)close(device.registers);
}

void fake_doorbell_hold(bool hold)
{
	atomic_store(&observed->held, hold);
}

uint32_t fake_doorbell_rings(uint32_t *last)
{
	if (last != NULL)
		*last = atomic_load(&observed->last);
	return atomic_load(&observed->rings);
}

void fake_doorbell_await(uint32_t count)
{
	const struct timespec pause = {.tv_nsec = 100000};
	uint64_t end = monotonic_now() + PATIENCE_NANOSECONDS;

	while (atomic_load(&observed->rings) < count && monotonic_now() < end)
		(void)nanosleep(&pause, NULL);
	assert_true(atomic_load(&observed->rings) >= count);
}
