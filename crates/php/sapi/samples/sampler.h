/* The sampler: a thread beside PHP in each worker that records PHP's stack. */
#ifndef HOWDAH_SAMPLER_H
#define HOWDAH_SAMPLER_H

#include "samples/backtrace.h"
#include "samples/text.h"
#include "howdah_sapi.h"
#include <stdbool.h>

/* sampler.c, for the SAPI */
/* Call it after the start of all modules and before any fork. */
void howdah_sampler_install(void);
void howdah_sampler_begin(const struct howdah_request *request);
/* Call it while PHP still has the request's memory. */
void howdah_sampler_before_cleaning(void);
void howdah_sampler_finish(void);
uint64_t howdah_monotonic(void);

/* The reason for a line of the slow log. */
enum howdah_occasion { HOWDAH_SLOW, HOWDAH_LIMIT, HOWDAH_END };

/* slow_log.c */
/* The thread that writes: each has its own buffers. */
enum howdah_author { HOWDAH_PHP, HOWDAH_SAMPLER, HOWDAH_LOOP_WATCH, HOWDAH_AUTHORS };
void howdah_log_set_up(const struct howdah_sampler_setup *setup);
/* For PHP's thread: notes the counters at the start of a request. */
void howdah_log_begin(const struct howdah_request *request);
/* For PHP's thread: notes the memory, for the last line of the request, which is written after PHP has freed it. */
void howdah_log_memory(void);
/* Writes only if `is_current` still returns true: PHP may have moved on to another request. */
void howdah_log_sample(enum howdah_author author, enum howdah_occasion occasion, unsigned number,
	const struct howdah_backtrace *backtrace, bool (*is_current)(void));
void howdah_log_profile(enum howdah_author author, const struct howdah_backtrace *backtrace);
/* For PHP's thread: a line of another recording, in the same file as profiles. */
void howdah_log_record(struct howdah_text *line);
/* A line on standard error. */
void howdah_log_limit(enum howdah_author author, const struct howdah_backtrace *backtrace, bool (*is_current)(void));

#endif
