/* The output of samples: a line of the slow log, a line on standard error, a record of a profile or of the memory.
 *
 * Each is one write(2) to a file that is open for appending, so that lines of several workers do not mix. A line that cannot
 * be written is lost. Files that have reached their largest size get no more lines. */

#include "samples/sampler.h"
#include "samples/text.h"
#include "zend_gc.h"
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#if __has_include("ext/mysqlnd/mysqlnd.h")
# include "ext/mysqlnd/mysqlnd.h"
# define HAS_MYSQLND 1
#endif

#define SLOW_LOG_BYTES (64 << 20)
#define PROFILE_BYTES (16 << 20)
#define LINE_BYTES (96 * 1024)
/* The most bytes of a frame: its names, with each byte escaped. */
#define FRAME_BYTES (6 * sizeof(struct howdah_frame) + 128)
#define LIMIT_FRAMES 20
/* The most frames in a line about a blocked event loop. */
#define LOOP_FRAMES 5
#define URL_BYTES 1024
/* A valid value of $_SERVER['TRACEPARENT'], as the router writes it, and where the id of the trace is in it. */
#define TRACE_PARENT_BYTES 55
#define TRACE_ID_AT 3
#define TRACE_ID_BYTES 32

/* Separators in a profile's record: control characters, which are removed from names. */
#define PART "\x1e"
#define FRAME "\x1f"

struct string {
	const char *bytes;
	size_t len;
};

/* The stack of a slow request, for its trace. Only its author writes it. */
static struct {
	/* The start of the request; 0 while it is written. */
	_Atomic uint64_t request;
	uint64_t at;
	size_t len;
	char text[HOWDAH_STACK_BYTES];
} stacks[HOWDAH_AUTHORS];

static struct howdah_sampler_setup setup;
static char lines[HOWDAH_AUTHORS][LINE_BYTES];

/* The current request, and the counters at its start. */
static struct {
	uint64_t number;
	uint64_t began;
	struct string method, url, script, trace_parent;
	struct rusage usage;
	uint64_t queries;
	uint32_t gc_runs;
	size_t memory, memory_peak;
} facts;

static uint64_t queries(void)
{
#ifdef HAS_MYSQLND
	static MYSQLND_STATS **global;
	static bool looked;

	if (!looked) {
		looked = true;
		global = dlsym(RTLD_DEFAULT, "mysqlnd_global_stats");
	}
	if (global && *global && (*global)->count > STAT_COM_STMT_EXECUTE) {
		return (*global)->values[STAT_COM_QUERY] + (*global)->values[STAT_COM_STMT_EXECUTE];
	}
#endif
	return 0;
}

static uint32_t gc_runs(void)
{
	zend_gc_status status;

	zend_gc_get_status(&status);
	return status.runs;
}

static uint64_t cpu_nanoseconds(const struct rusage *usage)
{
	return ((uint64_t) usage->ru_utime.tv_sec + (uint64_t) usage->ru_stime.tv_sec) * 1000000000
		+ ((uint64_t) usage->ru_utime.tv_usec + (uint64_t) usage->ru_stime.tv_usec) * 1000;
}

static struct string string(const char *text, size_t most)
{
	struct string string = { text ? text : "", text ? strnlen(text, most) : 0 };

	return string;
}

void howdah_log_set_up(const struct howdah_sampler_setup *new_setup)
{
	setup = *new_setup;
	/* Now, before the sampler runs: dlsym() takes a lock. */
	queries();
}

void howdah_log_begin(const struct howdah_request *request)
{
	facts.number++;
	facts.began = request->began;
	facts.memory = facts.memory_peak = 0;
	facts.method = string(request->method, 32);
	facts.url = string(request->uri, URL_BYTES);
	facts.script = string(request->script_filename, URL_BYTES);
	facts.trace_parent = string(request->trace_parent, TRACE_PARENT_BYTES);
	if (setup.slow_log >= 0 || setup.has_limit) {
		getrusage(RUSAGE_SELF, &facts.usage);
	}
	if (setup.slow_log >= 0) {
		facts.queries = queries();
		facts.gc_runs = gc_runs();
	}
}

void howdah_log_memory(void)
{
	facts.memory = zend_memory_usage(0);
	facts.memory_peak = zend_memory_peak_usage(0);
}

static bool has_room(int file, off_t most)
{
	struct stat status;

	return file >= 0 && fstat(file, &status) == 0 && status.st_size < most;
}

static void write_line(int file, struct howdah_text *line)
{
	howdah_text_put(line, "\n");
	if (write(file, line->bytes, line->len) < 0) {
		/* A full disk costs samples, not requests. */
		return;
	}
}

static struct howdah_text begin_line(enum howdah_author author)
{
	struct howdah_text line = { lines[author], LINE_BYTES, 0 };

	return line;
}

/* The text may belong to the next request already, or its memory may be freed: callers check is_current() after this. */
static void put(struct howdah_text *line, const struct string *string,
	void (*how)(struct howdah_text *, const char *, size_t))
{
	char copy[URL_BYTES];
	struct string now = *string;

	if (now.len <= sizeof(copy) && howdah_peek(copy, now.bytes, now.len)) {
		how(line, copy, now.len);
	} else {
		how(line, "", 0);
	}
}

/* ---- the slow log ---- */

static void put_trace_id(struct howdah_text *line, const char *trace_parent, size_t len)
{
	if (len == TRACE_PARENT_BYTES) {
		howdah_text_key(line, "trace_id");
		howdah_text_json(line, trace_parent + TRACE_ID_AT, TRACE_ID_BYTES);
	}
}

static void put_name(struct howdah_text *line, const struct howdah_frame *frame,
	void (*how)(struct howdah_text *, const char *, size_t))
{
	char name[sizeof(frame->class_name) + sizeof(frame->function) + 2];
	struct howdah_text text = { name, sizeof(name), 0 };

	if (frame->class_name[0]) {
		howdah_text_put(&text, frame->class_name);
		howdah_text_put(&text, "::");
	}
	howdah_text_put(&text, frame->function);
	how(line, name, text.len);
}

static void put_native(struct howdah_text *line, const struct howdah_backtrace *backtrace)
{
	bool is_internal = backtrace->depth > 0 && !backtrace->frames[0].file[0];

	howdah_text_key(line, "native");
	if (!is_internal && !backtrace->waits_in[0]) {
		howdah_text_put(line, "null");
		return;
	}
	howdah_text_put(line, "{\"function\":");
	if (is_internal) {
		put_name(line, &backtrace->frames[0], howdah_text_json);
	} else {
		howdah_text_put(line, "null");
	}
	howdah_text_key(line, "waits_in");
	if (backtrace->waits_in[0]) {
		howdah_text_json(line, backtrace->waits_in, strlen(backtrace->waits_in));
	} else {
		howdah_text_put(line, "null");
	}
	howdah_text_put(line, "}");
}

static void put_backtrace(struct howdah_text *line, const struct howdah_backtrace *backtrace)
{
	bool is_cut = backtrace->is_cut;

	howdah_text_key(line, "backtrace");
	howdah_text_put(line, "[");
	for (int i = 0; i < backtrace->depth; i++) {
		const struct howdah_frame *frame = &backtrace->frames[i];
		if (howdah_text_left(line) < FRAME_BYTES) {
			is_cut = true;
			break;
		}
		howdah_text_put(line, i ? ",{\"function\":" : "{\"function\":");
		howdah_text_json(line, frame->function, strlen(frame->function));
		if (frame->class_name[0]) {
			howdah_text_string(line, "class", frame->class_name);
		}
		if (frame->file[0]) {
			howdah_text_string(line, "file", frame->file);
			howdah_text_member(line, "line", frame->line);
		}
		howdah_text_put(line, "}");
	}
	howdah_text_put(line, "]");
	if (is_cut) {
		howdah_text_put(line, ",\"cut\":true");
	}
}

static void put_counters(struct howdah_text *line, const struct rusage *usage)
{
	howdah_text_key(line, "counters");
	howdah_text_put(line, "{\"mysql_queries\":");
	howdah_text_number(line, queries() - facts.queries);
	howdah_text_member(line, "included_files", zend_hash_num_elements(&EG(included_files)));
	howdah_text_member(line, "gc_runs", gc_runs() - facts.gc_runs);
	howdah_text_member(line, "minor_faults", (uint64_t) (usage->ru_minflt - facts.usage.ru_minflt));
	howdah_text_member(line, "major_faults", (uint64_t) (usage->ru_majflt - facts.usage.ru_majflt));
	howdah_text_member(line, "blocks_read", (uint64_t) (usage->ru_inblock - facts.usage.ru_inblock));
	howdah_text_member(line, "blocks_written", (uint64_t) (usage->ru_oublock - facts.usage.ru_oublock));
	howdah_text_member(line, "context_switches", (uint64_t) (usage->ru_nvcsw - facts.usage.ru_nvcsw));
	howdah_text_put(line, "}");
}

/* The beginning of a line. */
static void put_identity(struct howdah_text *line, uint64_t began, enum howdah_occasion occasion, unsigned number)
{
	static const char *const names[] = { "sample", "limit", "end" };

	howdah_text_put(line, "{\"time\":\"");
	howdah_text_time(line);
	howdah_text_put(line, "\"");
	howdah_text_string(line, "application", setup.application);
	/* It is the same in all lines of one request, and different in those of others. */
	howdah_text_key(line, "request");
	howdah_text_put(line, "\"");
	howdah_text_number(line, (uint64_t) getpid());
	howdah_text_put(line, ".");
	howdah_text_number(line, began / 1000);
	howdah_text_put(line, "\"");
	howdah_text_member(line, "pid", (uint64_t) getpid());
	howdah_text_string(line, "event", names[occasion]);
	if (occasion == HOWDAH_SLOW) {
		howdah_text_member(line, "sample", number);
	}
}

static void put_frames(struct howdah_text *line, const struct howdah_backtrace *backtrace, int most, const char *separator);

static void keep_stack(enum howdah_author author, uint64_t began, const struct howdah_backtrace *backtrace)
{
	struct howdah_text text = { stacks[author].text, HOWDAH_STACK_BYTES, 0 };

	atomic_store(&stacks[author].request, 0);
	put_frames(&text, backtrace, LIMIT_FRAMES, "\n");
	stacks[author].len = text.len;
	stacks[author].at = howdah_monotonic();
	atomic_store(&stacks[author].request, began);
}

size_t howdah_slow_stack(uint64_t request, char *out, uint64_t *after)
{
	size_t len = 0;

	*after = 0;
	for (int author = 0; author < HOWDAH_AUTHORS; author++) {
		if (!request || atomic_load(&stacks[author].request) != request || stacks[author].at - request < *after) {
			continue;
		}
		len = stacks[author].len;
		*after = stacks[author].at - request;
		memcpy(out, stacks[author].text, len);
		if (atomic_load(&stacks[author].request) != request) {
			len = 0;
		}
	}
	return len;
}

void howdah_log_sample(enum howdah_author author, enum howdah_occasion occasion, unsigned number,
	const struct howdah_backtrace *backtrace, bool (*is_current)(void))
{
	struct howdah_text line = begin_line(author);
	struct rusage usage;

	if (!has_room(setup.slow_log, SLOW_LOG_BYTES)) {
		return;
	}
	getrusage(RUSAGE_SELF, &usage);
	put_identity(&line, facts.began, occasion, number);
	howdah_text_key(&line, "method");
	put(&line, &facts.method, howdah_text_json);
	howdah_text_key(&line, "url");
	put(&line, &facts.url, howdah_text_json);
	howdah_text_key(&line, "script");
	put(&line, &facts.script, howdah_text_json);
	put(&line, &facts.trace_parent, put_trace_id);
	howdah_text_key(&line, "elapsed");
	howdah_text_seconds(&line, howdah_monotonic() - facts.began);
	howdah_text_key(&line, "cpu");
	howdah_text_seconds(&line, cpu_nanoseconds(&usage) - cpu_nanoseconds(&facts.usage));
	howdah_text_member(&line, "memory", occasion == HOWDAH_END ? facts.memory : zend_memory_usage(0));
	howdah_text_member(&line, "memory_peak", occasion == HOWDAH_END ? facts.memory_peak : zend_memory_peak_usage(0));
	put_counters(&line, &usage);
	if (backtrace) {
		put_native(&line, backtrace);
		put_backtrace(&line, backtrace);
	}
	howdah_text_put(&line, "}");
	if (is_current()) {
		if (backtrace && occasion == HOWDAH_SLOW) {
			keep_stack(author, facts.began, backtrace);
		}
		write_line(setup.slow_log, &line);
	}
}

/* ---- the slow log of async mode ---- */

int howdah_slow_log_rule(uint64_t *threshold, uint32_t *samples)
{
	*threshold = setup.slow_threshold;
	*samples = setup.slow_samples;
	return setup.slow_log >= 0;
}

/* A worker holds several requests: its CPU time and its counters belong to no single one. */
static void put_held(struct howdah_text *line, const struct howdah_held_request *request)
{
	howdah_text_key(line, "method");
	howdah_text_json(line, request->method, strnlen(request->method, 32));
	howdah_text_key(line, "url");
	howdah_text_json(line, request->uri, strnlen(request->uri, URL_BYTES));
	howdah_text_key(line, "script");
	howdah_text_json(line, request->script, strnlen(request->script, URL_BYTES));
	if (request->trace_parent) {
		put_trace_id(line, request->trace_parent, strnlen(request->trace_parent, TRACE_PARENT_BYTES + 1));
	}
	howdah_text_key(line, "elapsed");
	howdah_text_seconds(line, howdah_monotonic() - request->began);
	howdah_text_member(line, "memory", zend_memory_usage(0));
	howdah_text_member(line, "memory_peak", zend_memory_peak_usage(0));
	howdah_text_member(line, "held_requests", request->held);
}

static void log_held(enum howdah_author author, enum howdah_occasion occasion, unsigned number,
	const struct howdah_held_request *request, const struct howdah_backtrace *backtrace)
{
	struct howdah_text line = begin_line(author);

	if (!has_room(setup.slow_log, SLOW_LOG_BYTES)) {
		return;
	}
	put_identity(&line, request->began, occasion, number);
	put_held(&line, request);
	if (backtrace) {
		put_native(&line, backtrace);
		put_backtrace(&line, backtrace);
	}
	howdah_text_put(&line, "}");
	write_line(setup.slow_log, &line);
}

void howdah_log_held_end(const struct howdah_held_request *request)
{
	if (setup.slow_log >= 0 && howdah_monotonic() - request->began >= setup.slow_threshold) {
		log_held(HOWDAH_PHP, HOWDAH_END, 0, request, NULL);
	}
}

void howdah_log_blocked_loop(const struct howdah_held_request *request, unsigned number)
{
	static struct howdah_backtrace backtrace;

	howdah_backtrace_forget(&backtrace);
	if (howdah_backtrace_foreign(&backtrace) || howdah_backtrace_foreign(&backtrace)) {
		keep_stack(HOWDAH_LOOP_WATCH, request->began, &backtrace);
		log_held(HOWDAH_LOOP_WATCH, HOWDAH_SLOW, number, request, &backtrace);
	}
}

/* ---- the log ---- */

static void put_frames(struct howdah_text *line, const struct howdah_backtrace *backtrace, int most, const char *separator)
{
	for (int i = 0; i < backtrace->depth && i < most; i++) {
		const struct howdah_frame *frame = &backtrace->frames[i];
		howdah_text_put(line, i ? separator : "");
		put_name(line, frame, howdah_text_plain);
		if (i == 0 && backtrace->waits_in[0]) {
			howdah_text_put(line, " in ");
			howdah_text_put(line, backtrace->waits_in);
		}
		if (frame->file[0]) {
			howdah_text_put(line, " ");
			howdah_text_plain(line, frame->file, strlen(frame->file));
			howdah_text_put(line, ":");
			howdah_text_number(line, frame->line);
		}
	}
}

static void put_limit_text(struct howdah_text *line, const struct howdah_backtrace *backtrace, const struct rusage *usage)
{
	howdah_text_warning(line);
	howdah_text_put(line, "limits/timeout of the application \"");
	howdah_text_message(line, setup.application, strlen(setup.application));
	howdah_text_put(line, "\" ends a request: ");
	put(line, &facts.method, howdah_text_message);
	howdah_text_put(line, " ");
	put(line, &facts.url, howdah_text_message);
	howdah_text_put(line, ", script ");
	put(line, &facts.script, howdah_text_message);
	howdah_text_put(line, ", after ");
	howdah_text_seconds(line, howdah_monotonic() - facts.began);
	howdah_text_put(line, " s (");
	howdah_text_seconds(line, cpu_nanoseconds(usage) - cpu_nanoseconds(&facts.usage));
	howdah_text_put(line, " s of CPU), with ");
	howdah_text_number(line, zend_memory_usage(0) / 1024);
	howdah_text_put(line, " KiB of memory, in worker ");
	howdah_text_number(line, (uint64_t) getpid());
	howdah_text_put(line, ", at ");
	if (backtrace->depth == 0) {
		howdah_text_put(line, backtrace->is_cut ? "changing places" : "the start or end of the request");
	}
	put_frames(line, backtrace, LIMIT_FRAMES, " < ");
}

static void put_limit_json(struct howdah_text *line, const struct howdah_backtrace *backtrace, const struct rusage *usage)
{
	const char *query = memchr(facts.url.bytes, '?', facts.url.len);

	howdah_text_put(line, "{\"time\":\"");
	howdah_text_time(line);
	howdah_text_put(line, "\",\"level\":\"WARN\",\"message\":\"limits/timeout ends a request\"");
	howdah_text_string(line, "application", setup.application);
	howdah_text_key(line, "method");
	put(line, &facts.method, howdah_text_json);
	/* The query may contain secrets. */
	howdah_text_key(line, "uri");
	howdah_text_json(line, facts.url.bytes, query ? (size_t) (query - facts.url.bytes) : facts.url.len);
	howdah_text_key(line, "script");
	put(line, &facts.script, howdah_text_json);
	howdah_text_member(line, "pid", (uint64_t) getpid());
	howdah_text_key(line, "elapsed");
	howdah_text_seconds(line, howdah_monotonic() - facts.began);
	howdah_text_key(line, "cpu");
	howdah_text_seconds(line, cpu_nanoseconds(usage) - cpu_nanoseconds(&facts.usage));
	howdah_text_member(line, "memory", zend_memory_usage(0));
	put_native(line, backtrace);
	put_backtrace(line, backtrace);
	howdah_text_put(line, "}");
}

void howdah_log_limit(enum howdah_author author, const struct howdah_backtrace *backtrace, bool (*is_current)(void))
{
	struct howdah_text line = begin_line(author);
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	(setup.logs_json ? put_limit_json : put_limit_text)(&line, backtrace, &usage);
	if (is_current()) {
		write_line(STDERR_FILENO, &line);
	}
}

/* ---- profiles ---- */

/* Each frame is `FRAME`, then its name, file and line. The outermost frame comes last. */
void howdah_log_profile(enum howdah_author author, const struct howdah_backtrace *backtrace)
{
	struct howdah_text line = begin_line(author);

	if (!has_room(setup.profile, PROFILE_BYTES)) {
		return;
	}
	howdah_text_number(&line, (uint64_t) getpid());
	if (backtrace->waits_in[0]) {
		howdah_text_put(&line, FRAME "[");
		howdah_text_put(&line, backtrace->waits_in);
		howdah_text_put(&line, "]" PART PART);
	}
	for (int i = 0; i < backtrace->depth && howdah_text_left(&line) > FRAME_BYTES; i++) {
		const struct howdah_frame *frame = &backtrace->frames[i];
		howdah_text_put(&line, FRAME);
		put_name(&line, frame, howdah_text_plain);
		howdah_text_put(&line, PART);
		howdah_text_plain(&line, frame->file, strlen(frame->file));
		howdah_text_put(&line, PART);
		howdah_text_number(&line, frame->line);
	}
	if (backtrace->is_cut) {
		howdah_text_put(&line, FRAME "{more}" PART PART);
	} else if (backtrace->depth == 0) {
		howdah_text_put(&line, FRAME "{start or end of a request}" PART PART);
	}
	write_line(setup.profile, &line);
}

void howdah_log_record(struct howdah_text *line)
{
	if (has_room(setup.profile, PROFILE_BYTES)) {
		write_line(setup.profile, line);
	}
}

/* ---- a blocked event loop ---- */

void howdah_loop_stack(struct howdah_text *text)
{
	static struct howdah_backtrace backtrace;

	howdah_backtrace_forget(&backtrace);
	if (howdah_backtrace_foreign(&backtrace) || howdah_backtrace_foreign(&backtrace)) {
		put_frames(text, &backtrace, LOOP_FRAMES, " < ");
	}
}
