/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * record_print.c - output of samples: through MPI to rank 0, and in JSON lines to its standard
 * output, which reaches the user who started the job from any node, container or VM.
 *
 * A line holds the samples of one rank at one size: nanoseconds as little-endian unsigned numbers
 * of 2, 4 or 8 bytes, as the largest sample requires, in base64. The last line contains the number
 * of lines from the first rank's line on, and the CRC-32 (zlib's) of their bytes: if the last line
 * is missing or does not match, the output is incomplete.
 */
#include <endian.h>
#include <inttypes.h>
#include <math.h>

#include "record.h"

#define TAG_LENGTH 3
#define TAG_SAMPLES 4
#define BASE64_WIDTH 3 /* bytes that become 4 characters */

struct output {
	uint32_t table[256]; /* of the CRC */
	uint32_t crc;
	long lines;
};

static struct output output_begin(void)
{
	struct output output = {.crc = UINT32_MAX};

	for (uint32_t byte = 0; byte < 256; byte++) {
		uint32_t value = byte;

		for (int bit = 0; bit < 8; bit++)
			value = value >> 1U ^ (value & 1U ? UINT32_C(0xedb88320) : 0);
		output.table[byte] = value;
	}
	return output;
}

/* Print bytes, and add them to the CRC and the count of lines. */
static void put_bytes(struct output *output, const char *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		unsigned char byte = (unsigned char)bytes[i];

		output->crc = output->table[(output->crc ^ byte) & 0xffU] ^ output->crc >> 8U;
		output->lines += byte == '\n';
	}
	if (fwrite(bytes, 1, count, stdout) != count) {
		fprintf(stderr, "record: error: the samples cannot be written: check the destination of the "
				"output\n");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

__attribute__((format(printf, 2, 3))) static void put_text(struct output *output, const char *format, ...)
{
	char text[512];
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	put_bytes(output, text, (size_t)length);
}

static void put_base64(struct output *output, const unsigned char *bytes, size_t count)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char text[4096];
	size_t used = 0;

	for (size_t i = 0; i < count; i += BASE64_WIDTH) {
		size_t there = count - i < BASE64_WIDTH ? count - i : BASE64_WIDTH;
		uint32_t bits = (uint32_t)bytes[i] << 16U;

		if (there > 1)
			bits |= (uint32_t)bytes[i + 1] << 8U;
		if (there > 2)
			bits |= bytes[i + 2];
		for (unsigned digit = 0; digit < 4; digit++)
			text[used++] = (char)(digit > there ? '=' : digits[bits >> (18U - 6U * digit) & 63U]);
		if (used == sizeof(text)) {
			put_bytes(output, text, used);
			used = 0;
		}
	}
	put_bytes(output, text, used);
}

/* The description of a series that goes to rank 0. */
struct encoded {
	long messages;
	long count;
	int width; /* bytes of a sample; 0: there are no samples */
};

/*
 * Convert the samples in place to nanoseconds of the width that the largest sample needs. Writing
 * never overtakes reading.
 */
static struct encoded encode(const struct recorder *recorder, const struct series *series)
{
	struct encoded encoded = {series->messages, series->count, 2};
	unsigned char *bytes = (unsigned char *)series->samples;
	int64_t largest = 0;

	if (!series->kept)
		return (struct encoded){0};
	for (long i = 0; i < series->count; i++) {
		series->samples[i] = llround((double)series->samples[i] * recorder->nanoseconds_per_tick);
		if (series->samples[i] > largest)
			largest = series->samples[i];
	}
	if (largest > UINT16_MAX)
		encoded.width = largest > UINT32_MAX ? 8 : 4;
	for (long i = 0; i < series->count; i++) {
		uint64_t value = htole64((uint64_t)series->samples[i]);

		memcpy(bytes + i * encoded.width, &value, (size_t)encoded.width);
	}
	return encoded;
}

static void put_series(struct output *output, size_t size, int rank, const struct encoded *encoded,
		       const void *bytes)
{
	if (encoded->width == 0)
		return;
	put_text(output,
		 "{\"size\": %zu, \"rank\": %d, \"messages\": %ld, \"samples\": %ld, \"width\": %d, "
		 "\"nanoseconds\": \"",
		 size, rank, encoded->messages, encoded->count, encoded->width);
	put_base64(output, bytes, (size_t)encoded->count * (size_t)encoded->width);
	put_text(output, "\"}\n");
}

/* One rank after the other, so that rank 0 holds the samples of one other rank at a time. */
static void print_series(struct output *output, const struct recorder *recorder, const struct series *series)
{
	int rank, ranks;
	struct encoded encoded = encode(recorder, series);

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (rank != 0) {
		MPI_Send(&encoded, sizeof(encoded), MPI_BYTE, 0, TAG_LENGTH, MPI_COMM_WORLD);
		MPI_Send(series->samples, (int)(encoded.count * encoded.width), MPI_BYTE, 0, TAG_SAMPLES,
			 MPI_COMM_WORLD);
		return;
	}
	put_series(output, series->size, 0, &encoded, series->samples);
	for (int other = 1; other < ranks; other++) {
		void *bytes;

		MPI_Recv(&encoded, sizeof(encoded), MPI_BYTE, other, TAG_LENGTH, MPI_COMM_WORLD,
			 MPI_STATUS_IGNORE);
		bytes = measure_buffer((size_t)encoded.count * (size_t)encoded.width);
		MPI_Recv(bytes, (int)(encoded.count * encoded.width), MPI_BYTE, other, TAG_SAMPLES,
			 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		put_series(output, series->size, other, &encoded, bytes);
		free(bytes);
	}
}

/* The clock of each rank, and the cost of recording there. */
static void print_clocks(struct output *output, const struct recorder *recorder)
{
	int rank, ranks;
	struct recorder *all;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	all = measure_buffer((size_t)ranks * sizeof(*all));
	MPI_Gather(recorder, sizeof(*recorder), MPI_BYTE, all, sizeof(*recorder), MPI_BYTE, 0,
		   MPI_COMM_WORLD);
	for (int i = 0; rank == 0 && i < ranks; i++)
		put_text(output,
			 "{\"rank\": %d, \"clock\": \"%s\", \"nanoseconds_per_tick\": %.9f, "
			 "\"calibrated_seconds\": %.3f, \"recording_ns\": %.2f, "
			 "\"iteration_ns\": %.2f}\n",
			 i, all[i].clock == RECORDER_COUNTER ? "counter" : "system",
			 all[i].nanoseconds_per_tick, all[i].calibrated_seconds,
			 all[i].sample_ticks * all[i].nanoseconds_per_tick,
			 all[i].iteration_ticks * all[i].nanoseconds_per_tick);
	free(all);
}

/* Ends the job if time ran backwards on a rank, which an invariant counter should not permit. */
static void check_clocks(const struct series *series, int count)
{
	int backwards = 0, somewhere;

	for (int i = 0; i < count; i++)
		for (long j = 0; series[i].kept && j < series[i].count; j++)
			backwards |= series[i].samples[j] < 0;
	MPI_Allreduce(&backwards, &somewhere, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	if (somewhere)
		refuse("record: error: the processor's time stamp counter ran backwards: "
		       "use --clock system\n");
}

void record_print(const struct recorder *recorder, const struct series *series, int count)
{
	struct output output = output_begin();
	int rank;

	check_clocks(series, count);
	print_clocks(&output, recorder);
	for (int i = 0; i < count; i++)
		print_series(&output, recorder, &series[i]);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (rank == 0) {
		printf("{\"end\": true, \"lines\": %ld, \"crc32\": %" PRIu32 "}\n", output.lines,
		       output.crc ^ UINT32_MAX);
		if (fflush(stdout) != 0) {
			fprintf(stderr, "record: error: the samples cannot be written: check the destination "
					"of the output\n");
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
	}
}
