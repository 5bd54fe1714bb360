/* SPDX-License-Identifier: BSD-3-Clause */
/* job_secret.c - a secret that is the same on all hosts of a job: see job_secret.h. */
#include "job_secret.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* Slurm also passes variables with this prefix on with --export=NONE. */
#define VARIABLE "SLURM_VICINAL_SECRET"

static bool is_secret(const char *text)
{
	return strlen(text) == JOB_SECRET_DIGITS &&
	       strspn(text, "0123456789abcdef") == (size_t)JOB_SECRET_DIGITS;
}

void job_secret_draw(bool is_step)
{
	unsigned char drawn[JOB_SECRET_DIGITS / 2];
	char secret[JOB_SECRET_DIGITS + 1];
	const char *known = getenv(VARIABLE);

	if (is_step && getenv("SLURM_JOB_ID") != NULL && known != NULL && is_secret(known))
		return;
	(void)unsetenv(VARIABLE);
	if (getrandom(drawn, sizeof(drawn), 0) != (ssize_t)sizeof(drawn))
		return;
	for (size_t i = 0; i < sizeof(drawn); i++)
		(void)snprintf(secret + 2 * i, 3, "%02x", drawn[i]);
	(void)setenv(VARIABLE, secret, 1);
}

void job_secret_read(spank_t spank, char secret[JOB_SECRET_DIGITS + 1])
{
	if (spank_getenv(spank, VARIABLE, secret, JOB_SECRET_DIGITS + 1) != ESPANK_SUCCESS ||
	    !is_secret(secret))
		secret[0] = '\0';
}

void job_secret_hide(spank_t spank)
{
	(void)spank_unsetenv(spank, VARIABLE);
}
