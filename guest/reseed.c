/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * reseed.c - mixes standard input into the random numbers of a guest's kernel.
 *
 * Guests that were started from one saved state would otherwise draw the same numbers, because
 * their kernels hold the same key. Written bytes alone do not change that key before its next
 * renewal, so this program requests the renewal.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <linux/random.h>

#define SEED_MAX 512U
#define SEED_MIN 32U

int main(void)
{
	struct rand_pool_info *pool = malloc(sizeof(*pool) + SEED_MAX);

	if (pool == NULL)
		return EXIT_FAILURE;
	size_t length = fread(pool->buf, 1, SEED_MAX, stdin);
	int device = open("/dev/urandom", O_WRONLY | O_CLOEXEC);

	if (length < SEED_MIN) {
		(void)fprintf(stderr, "reseed: %zu bytes are too few\n", length);
		free(pool);
		return EXIT_FAILURE;
	}
	/* The input is hexadecimal digits, with four bits of entropy each. */
	pool->entropy_count = (int)(4 * length);
	pool->buf_size = (int)length;
	if (device < 0 || ioctl(device, RNDADDENTROPY, pool) != 0 || ioctl(device, RNDRESEEDCRNG) != 0) {
		(void)fprintf(stderr, "reseed: /dev/urandom: %s\n", strerror(errno));
		free(pool);
		return EXIT_FAILURE;
	}
	(void)close(device);
	free(pool);
	return EXIT_SUCCESS;
}
