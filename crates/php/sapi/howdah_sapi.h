/* howdah's SAPI: the interface between the Rust side and the C side of the PHP processes. */
#ifndef HOWDAH_SAPI_H
#define HOWDAH_SAPI_H

#include <stddef.h>
#include <stdint.h>

/* One CGI variable. Both strings end with NUL. */
struct howdah_variable {
	/* The place of the name among those of howdah_variable_name(), or HOWDAH_CUSTOM. */
	uint16_t code;
	const char *name;
	size_t name_len;
	const char *value;
	size_t value_len;
};

#define HOWDAH_CUSTOM UINT16_MAX

/* A request. Pointers may be null where the variable is absent. */
struct howdah_request {
	const struct howdah_variable *variables;
	size_t count;
	const char *method;
	const char *uri;
	const char *query_string;
	const char *script_name;
	const char *script_filename;
	const char *path_info;
	const char *document_root;
	const char *content_type;
	const char *cookie;
	const char *authorization;
	long content_length;
	const char *trace_parent;
	/* The start, by CLOCK_MONOTONIC, in nanoseconds: the value in the worker's account. */
	uint64_t began;
};

/* The settings of the sampler. The words are in shared memory. */
struct howdah_sampler_setup {
	const char *application;
	/* The doorbell: it changes when another word does. */
	const uint32_t *bell;
	/* Samples per second, for a profile. */
	const uint32_t *rate;
	/* The start time of the request to end. */
	const uint64_t *end;
	/* Descriptors; -1 without a file. */
	int slow_log;
	int profile;
	/* A request that takes longer, in nanoseconds, is slow. */
	uint64_t slow_threshold;
	/* The most samples of it. */
	uint32_t slow_samples;
	/* Whether limits/timeout may end a request. */
	int has_limit;
	/* Whether lines on standard error are JSON objects. */
	int logs_json;
};

/* A request of async mode, for the slow log. */
struct howdah_held_request {
	const char *method;
	const char *uri;
	const char *script;
	/* NULL without one. */
	const char *trace_parent;
	uint64_t began;
	/* How many requests the worker holds. */
	uint32_t held;
};

/* The numbers of opcache. Memory is in bytes. */
struct howdah_opcache {
	uint64_t used;
	uint64_t free;
	uint64_t wasted;
	uint64_t scripts;
	uint64_t hits;
	uint64_t misses;
	uint64_t restarts;
};

/* Rust calls C. */
int howdah_php_startup(const char *ini_file, const char *ini_entries, const char *server_software);
int howdah_php_count_settings(const char *ini_entries);
void howdah_php_lock_setting(const char *name);
int howdah_php_opcache_is_on(void);
void howdah_php_each_setting(void (*visit)(void *context, const char *name, size_t len), void *context);
int howdah_php_compiles(const char *path, char *reason, size_t room);
void howdah_php_run(const struct howdah_request *request);
void howdah_php_enable_worker_script(int is_async); /* before howdah_php_startup() */
void howdah_php_leave_worker_mode(void); /* after the fork: this worker is in classic mode */
void howdah_php_run_worker_script(const struct howdah_request *boot);
void howdah_php_shutdown(void);
const char *howdah_php_version(void);
const char *howdah_php_extension_dir(void);
const char *howdah_php_ini_dir(void);

/* Rust calls lock_folder.c, before howdah_php_startup(). */
void howdah_lock_folder_set(const char *folder, const char *problem);

/* Rust calls process.c. */
void howdah_set_title(const char *title);
void howdah_die_with_prototype(int prototype_pid, int pidfd_of_supervisor, int pid_of_supervisor);
void howdah_php_after_fork(void);

/* Rust calls samples/sampler.c. */
int howdah_sampler_start(const struct howdah_sampler_setup *setup); /* 0, or errno */
int howdah_sampler_has_ended_a_request(void);
void howdah_sampler_loop(int holds_requests); /* async mode: a profile samples the loop while it holds requests */

/* Rust calls samples/slow_log.c: the last stack that the slow log has of this request, and the time after which it was
 * taken. Returns its length, which is at most HOWDAH_STACK_BYTES; 0 without one. */
#define HOWDAH_STACK_BYTES 1024
size_t howdah_slow_stack(uint64_t request, char *out, uint64_t *after);

/* Rust calls samples/slow_log.c in async mode: in PHP's thread, and the last two in the thread beside the event loop. */
int howdah_slow_log_rule(uint64_t *threshold, uint32_t *samples); /* 0: there is no slow log */
void howdah_log_held_end(const struct howdah_held_request *request); /* logs it if it was slow */
void howdah_log_blocked_loop(const struct howdah_held_request *used_last, unsigned number);
struct howdah_text;
void howdah_loop_stack(struct howdah_text *text); /* the innermost frames of PHP's stack */

/* C calls Rust. None of these calls PHP, so no bailout (longjmp) ever crosses a Rust frame. */
const char *howdah_variable_name(size_t code); /* NULL behind the last one */
long howdah_read_body(char *out, size_t len); /* 0: the end; -1: the rest will not arrive */
int howdah_write(const char *bytes, size_t len); /* 0: the client is gone */
void howdah_flush(void);
int howdah_client_is_gone(void);
#define HOWDAH_INTERIM 0x8000 /* in the status: the head of a response before the response (1xx) */
void howdah_head_begin(int status, const char *reason, size_t len);
void howdah_head_line(const char *line, size_t len);
void howdah_head_end(void);
void howdah_finish(void); /* the response is complete */
const struct howdah_request *howdah_next_request(void); /* waits; NULL: the worker script must end */
void howdah_request_done(void); /* PHP is ready for the next request */
uint32_t howdah_memory_recording(void); /* its number; 0: the memory of a worker script is not recorded now */
int howdah_opcache_is_due(void);
void howdah_opcache_numbers(const struct howdah_opcache *numbers);
/* Async mode: requests have numbers. */
int howdah_async_begin(void); /* the script has booted; returns the descriptor that its event loop watches */
int64_t howdah_async_accept(void); /* -1: no request waits, or no place is free */
int howdah_async_is_idle(void); /* 1: the script holds no request that is to be answered */
int howdah_async_takes_requests(void); /* 0: the script must end */
const struct howdah_request *howdah_async_request(uint32_t number);
int howdah_async_is_open(uint32_t number); /* 0: no client waits for the rest of the response */
long howdah_async_read_body(uint32_t number, char *out, size_t len); /* 0: the end; -1: the rest will not arrive */
int howdah_async_write_head(uint32_t number); /* of howdah_head_begin() and howdah_head_line(); 0: the client is gone */
int howdah_async_write(uint32_t number, const char *bytes, size_t len); /* 0: the client is gone */
void howdah_async_flush(uint32_t number);
void howdah_async_finish(uint32_t number); /* the response is complete */
void howdah_async_release(uint32_t number); /* its object is freed */
void howdah_async_close(void); /* the script has ended */
void howdah_log(const char *message, int syslog_level, const char *method, const char *uri);

/* process.c, for the SAPI */
extern int howdah_forked; /* a script forked this process: it is neither a prototype nor a worker */
void howdah_forks_wrap(void);
void howdah_forget_mt_seed(void);

/* signals.c */
void howdah_signals_wrap(void);
void howdah_signals_after_fork(void);
void howdah_signals_before_request(void);
void howdah_signals_after_request(void);
void howdah_signals_after_boot(void);

/* lock_folder.c, for the SAPI */
struct _zend_array;
void howdah_lock_folder_default(struct _zend_array *configuration);
void howdah_lock_folder_check(void);

/* user_ini.c */
void howdah_activate_user_ini(const char *script_filename, const char *document_root);

#endif
