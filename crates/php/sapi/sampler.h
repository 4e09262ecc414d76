/* The sampler: a thread beside PHP in each worker, that has PHP's stack written down. */
#ifndef HOWDAH_SAMPLER_H
#define HOWDAH_SAMPLER_H

#include "backtrace.h"
#include "howdah_sapi.h"
#include <stdbool.h>

/* sampler.c, for the SAPI */
/* After all modules have had their word, before any fork. */
void howdah_sampler_listen(void);
void howdah_sampler_begin(const struct howdah_request *request);
/* PHP's memory is still what the request made of it. */
void howdah_sampler_before_cleaning(void);
void howdah_sampler_finish(void);
uint64_t howdah_monotonic(void);

/* What a sample is taken for. */
enum howdah_occasion { HOWDAH_SLOW, HOWDAH_LIMIT, HOWDAH_END };

/* sample_log.c */
/* Whose buffers are used. */
enum howdah_author { HOWDAH_PHP, HOWDAH_SAMPLER, HOWDAH_AUTHORS };
void howdah_log_set_up(const struct howdah_sampler_setup *setup);
/* By PHP's thread: what the counters of a request are compared with. */
void howdah_log_begin(const struct howdah_request *request);
/* By PHP's thread: notes the memory for the line at the end, when there is none any more. */
void howdah_log_memory(void);
/* Written only while `is_current` says so: PHP may have gone on to another request. */
void howdah_log_sample(enum howdah_author author, enum howdah_occasion occasion, unsigned number,
	const struct howdah_backtrace *backtrace, bool (*is_current)(void));
void howdah_log_profile(enum howdah_author author, const struct howdah_backtrace *backtrace);
/* A line on standard error. */
void howdah_log_limit(enum howdah_author author, const struct howdah_backtrace *backtrace, bool (*is_current)(void));

#endif
