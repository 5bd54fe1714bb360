/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * task.c - runs a program in a guest for a task on the host. The task is at the other end of
 * standard input and output (frames.h), and supplies the program's arguments, variables, streams,
 * signals and PMI. If the other end is closed, the program is killed.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frames.h"
#include "program.h"

#define CHUNK 32768U

/* Bytes to write to the program. */
struct pending {
	enum frame_kind kind;
	char *bytes;
	size_t length;
	size_t done;
	bool ends; /* the stream is closed afterwards */
};

struct task {
	struct program program;
	struct pending input;
	struct pending pmi;
};

/* Keep a frame for one of the program's streams. */
static void put(struct pending *pending, struct frame *frame)
{
	free(pending->bytes);
	pending->bytes = frame->bytes;
	pending->length = frame->length;
	pending->done = 0;
	pending->ends = frame->length == 0;
	frame->bytes = NULL;
}

static void close_end(int *end)
{
	if (*end >= 0)
		(void)close(*end);
	*end = -1;
}

/* Write as much as the program accepts. Returns -1 if the task's end is closed. */
static int hand_on(struct pending *pending, int *end)
{
	if (*end >= 0 && pending->done < pending->length) {
		ssize_t put_now =
			write(*end, pending->bytes + pending->done, pending->length - pending->done);

		if (put_now < 0 && (errno == EAGAIN || errno == EINTR))
			return 0;
		if (put_now < 0)
			close_end(end);
		else
			pending->done += (size_t)put_now;
	}
	if (*end < 0)
		pending->done = pending->length;
	if (pending->length == 0 || pending->done < pending->length)
		return 0;
	const char taken = (char)pending->kind;

	pending->length = pending->done = 0;
	return frame_write(FRAME_TAKEN, &taken, sizeof(taken));
}

/* Returns -1 if the task's end is closed. */
static int listen_to_task(struct task *task)
{
	struct frame frame;
	int result = 0;

	if (frame_read(&frame) != 0)
		return -1;
	switch (frame.kind) {
	case FRAME_INPUT:
		put(&task->input, &frame);
		if (task->input.ends)
			close_end(&task->program.input);
		break;
	case FRAME_PMI:
		put(&task->pmi, &frame);
		if (task->pmi.ends)
			close_end(&task->program.pmi);
		break;
	case FRAME_SIGNAL:
		/* To the program and all its descendants, as slurmstepd does. */
		if (frame.length == 1)
			(void)kill(-task->program.number, frame.bytes[0]);
		break;
	default:
		result = -1;
		break;
	}
	free(frame.bytes);
	return result;
}

/* Pass the program's output on. Returns -1 if the task's end is closed. */
static int listen_to_program(enum frame_kind kind, int *end)
{
	char bytes[CHUNK];
	ssize_t got = read(*end, bytes, sizeof(bytes));

	if (got > 0)
		return frame_write(kind, bytes, (size_t)got);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	close_end(end);
	return 0;
}

/* Read what the program wrote before its end. Its descendants may still hold the streams open. */
static int drain(struct task *task)
{
	const enum frame_kind kinds[] = {FRAME_OUTPUT, FRAME_ERRORS, FRAME_PMI};
	int *ends[] = {&task->program.output, &task->program.errors, &task->program.pmi};

	for (size_t i = 0; i < 3; i++) {
		while (*ends[i] >= 0 && poll(&(struct pollfd){.fd = *ends[i], .events = POLLIN}, 1, 0) > 0) {
			if (listen_to_program(kinds[i], ends[i]) != 0)
				return -1;
		}
	}
	return 0;
}

/* Returns 1 if the program has ended and that was reported, -1 if the task's end is closed. */
static int check_end(struct task *task, int children)
{
	struct signalfd_siginfo information;
	int status = 0;

	(void)!read(children, &information, sizeof(information));
	if (waitpid(task->program.number, &status, WNOHANG) != task->program.number)
		return 0;
	if (drain(task) != 0)
		return -1;
	const char value = (char)(WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));

	(void)frame_write(WIFEXITED(status) ? FRAME_EXITED : FRAME_KILLED, &value, sizeof(value));
	return 1;
}

/* Relay until the program has ended, or the task's end is closed. */
static void stand_between(struct task *task, int children)
{
	struct program *program = &task->program;
	int result = 0;

	while (result == 0) {
		struct pollfd ready[] = {
			{.fd = STDIN_FILENO, .events = POLLIN},
			{.fd = children, .events = POLLIN},
			{.fd = program->output, .events = POLLIN},
			{.fd = program->errors, .events = POLLIN},
			{.fd = program->pmi,
			 .events = (short)(POLLIN | (task->pmi.length > 0 ? POLLOUT : 0))},
			{.fd = task->input.length > 0 ? program->input : -1, .events = POLLOUT},
		};

		if (poll(ready, sizeof(ready) / sizeof(ready[0]), -1) < 0 && errno != EINTR)
			return;
		if (ready[0].revents != 0)
			result = listen_to_task(task);
		if (result == 0 && ready[2].revents != 0 && program->output >= 0)
			result = listen_to_program(FRAME_OUTPUT, &program->output);
		if (result == 0 && ready[3].revents != 0 && program->errors >= 0)
			result = listen_to_program(FRAME_ERRORS, &program->errors);
		if (result == 0 && (ready[4].revents & (POLLIN | POLLHUP | POLLERR)) != 0 &&
		    program->pmi >= 0)
			result = listen_to_program(FRAME_PMI, &program->pmi);
		if (result == 0)
			result = hand_on(&task->pmi, &program->pmi);
		if (result == 0)
			result = hand_on(&task->input, &program->input);
		if (result == 0 && ready[1].revents != 0)
			result = check_end(task, children);
	}
}

static void be_patient(int end)
{
	if (end >= 0)
		(void)fcntl(end, F_SETFL, fcntl(end, F_GETFL) | O_NONBLOCK);
}

int main(void)
{
	static const enum frame_kind order[] = {FRAME_ARGUMENTS, FRAME_VARIABLES, FRAME_DIRECTORY};
	struct frame frames[3];
	struct task task = {.input = {.kind = FRAME_INPUT}, .pmi = {.kind = FRAME_PMI}};
	char fault[512];
	sigset_t child_ended;

	(void)signal(SIGPIPE, SIG_IGN);
	for (size_t i = 0; i < 3; i++) {
		if (frame_read(&frames[i]) != 0 || frames[i].kind != order[i])
			return EXIT_FAILURE;
	}
	(void)sigemptyset(&child_ended);
	(void)sigaddset(&child_ended, SIGCHLD);
	(void)sigprocmask(SIG_BLOCK, &child_ended, NULL);
	int children = signalfd(-1, &child_ended, SFD_CLOEXEC | SFD_NONBLOCK);

	if (children < 0)
		return EXIT_FAILURE;
	if (program_start(&task.program, &frames[0], &frames[1], &frames[2], fault, sizeof(fault)) != 0)
		return frame_write(FRAME_FAILED, fault, strlen(fault)) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
	be_patient(task.program.input);
	be_patient(task.program.output);
	be_patient(task.program.errors);
	be_patient(task.program.pmi);
	stand_between(&task, children);
	/* Also kill the processes that it left behind. */
	(void)kill(-task.program.number, SIGKILL);
	return EXIT_SUCCESS;
}
