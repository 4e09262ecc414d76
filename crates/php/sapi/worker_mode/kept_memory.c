/* The memory that a worker script keeps from one request to the next, for `howdah leaks`.
 *
 * While the supervisor records, a worker writes a line of JSON after each request, before it waits for the next one. Cycles
 * that PHP would collect at some later time are collected first, so that they are not taken for a leak.
 *
 * In async mode the line is written when the script holds no request, before it takes the next one. The requests that it
 * held together since the last line are one entry.
 *
 * A line has the whole memory of PHP and of malloc, and the numbers of objects of those classes whose number has changed
 * since the last line. Nothing here fails: a line that is too long is cut, and a number that is unknown is left out. */

#include "worker_mode/kept_memory.h"
#include "exchange.h"
#include "samples/sampler.h"
#include "php.h"
#include "zend_exceptions.h"
#include "zend_gc.h"
#include <dirent.h>
#include <malloc.h>
#include <unistd.h>

#define LINE_BYTES (64 * 1024)
#define NAME_BYTES 256
/* Room for the name of a class, with each byte escaped, and its number. */
#define CLASS_BYTES (6 * NAME_BYTES + 32)

/* The recording that goes on, 0 for none, and the requests of this worker since it began. */
static uint32_t recording;
static uint64_t number;
/* The request that has ended, or in async mode several. */
static uint32_t requests;
static char method[16], path[512];
/* The objects of each class, as the last line had them, and now. Their memory is not PHP's. */
static HashTable before, present;

static void begin(uint32_t new_recording)
{
	if (recording == 0) {
		zend_hash_init(&before, 64, NULL, NULL, 1);
		zend_hash_init(&present, 64, NULL, NULL, 1);
	} else {
		zend_hash_clean(&before);
	}
	recording = new_recording;
	number = 0;
}

static void end(void)
{
	if (recording != 0) {
		zend_hash_destroy(&before);
		zend_hash_destroy(&present);
		recording = 0;
	}
	requests = 0;
}

void howdah_kept_memory_note_request(void)
{
	const struct howdah_request *request = howdah_exchange_request();

	if (howdah_memory_recording() == 0 || !request || !request->method || !request->uri) {
		return;
	}
	strlcpy(method, request->method, sizeof(method));
	strlcpy(path, request->uri, sizeof(path));
	path[strcspn(path, "?")] = '\0';
	requests = 1;
}

void howdah_kept_memory_note_held(const struct howdah_request *request)
{
	if (howdah_memory_recording() == 0) {
		return;
	}
	bool is_first = requests == 0;
	strlcpy(method, is_first ? request->method : "several", sizeof(method));
	strlcpy(path, is_first ? request->uri : "requests together", sizeof(path));
	path[strcspn(path, "?")] = '\0';
	requests++;
}

void howdah_kept_memory_collect(void)
{
	if (requests == 0) {
		return;
	}
	zend_gc_collect_cycles();
	if (EG(exception)) {
		/* A destructor has thrown. The script has not called this function, and cannot catch that. */
		zend_exception_error(EG(exception), E_WARNING);
	}
}

/* ---- a line ---- */

static void put_malloc(struct howdah_text *line)
{
#if __GLIBC_PREREQ(2, 33)
	struct mallinfo2 used = mallinfo2();

	howdah_text_member(line, "malloc", used.uordblks + used.hblkhd);
#else
	(void) line;
#endif
}

static void put_descriptors(struct howdah_text *line)
{
	DIR *folder = opendir("/proc/self/fd");
	uint64_t count = 0;

	if (!folder) {
		return;
	}
	while (readdir(folder)) {
		count++;
	}
	closedir(folder);
	/* Without ".", ".." and the folder itself. */
	howdah_text_member(line, "descriptors", count > 3 ? count - 3 : 0);
}

static void put_used_memory(struct howdah_text *line, const char *key, const zval *status, const char *part)
{
	zval *array = zend_hash_str_find(Z_ARRVAL_P(status), part, strlen(part));
	zval *used = array && Z_TYPE_P(array) == IS_ARRAY
		? zend_hash_str_find(Z_ARRVAL_P(array), ZEND_STRL("used_memory")) : NULL;

	if (used && Z_TYPE_P(used) == IS_LONG && Z_LVAL_P(used) >= 0) {
		howdah_text_member(line, key, (uint64_t) Z_LVAL_P(used));
	}
}

static void put_opcache(struct howdah_text *line)
{
	zend_function *function = zend_hash_str_find_ptr(CG(function_table), ZEND_STRL("opcache_get_status"));
	const char *restricted = zend_ini_string("opcache.restrict_api", sizeof("opcache.restrict_api") - 1, 0);
	zval status, with_scripts;

	/* A script outside of that path gets a warning. */
	if (!function || (restricted && restricted[0])) {
		return;
	}
	ZVAL_FALSE(&with_scripts);
	zend_call_known_function(function, NULL, NULL, &status, 1, &with_scripts, NULL);
	if (Z_TYPE(status) == IS_ARRAY) {
		put_used_memory(line, "opcache", &status, "memory_usage");
		put_used_memory(line, "strings", &status, "interned_strings_usage");
	}
	zval_ptr_dtor(&status);
}

static void count_objects(void)
{
	zend_hash_clean(&present);
	for (uint32_t i = 1; i < EG(objects_store).top; i++) {
		zend_object *object = EG(objects_store).object_buckets[i];
		if (!IS_OBJ_VALID(object) || OBJ_FLAGS(object) & IS_OBJ_FREE_CALLED) {
			continue;
		}
		zend_ulong class = (zend_ulong) (uintptr_t) object->ce;
		zval *count = zend_hash_index_find(&present, class);
		if (count) {
			Z_LVAL_P(count)++;
		} else {
			zval one;
			ZVAL_LONG(&one, 1);
			zend_hash_index_add_new(&present, class, &one);
		}
	}
}

/* The name of an anonymous class goes on after a NUL, with its file and line. */
static void put_class_name(struct howdah_text *line, const zend_string *name)
{
	char text[NAME_BYTES];
	size_t len = ZSTR_LEN(name) < sizeof(text) ? ZSTR_LEN(name) : sizeof(text);
	char *nul;

	memcpy(text, ZSTR_VAL(name), len);
	nul = memchr(text, '\0', len);
	if (nul) {
		*nul = ' ';
	}
	howdah_text_json(line, text, len);
}

static void put_class(struct howdah_text *line, zend_ulong class, zend_long count, bool *is_first)
{
	const zend_class_entry *entry = (const zend_class_entry *) (uintptr_t) class;
	const zval *former = zend_hash_index_find(&before, class);
	zval now;

	if ((former ? Z_LVAL_P(former) : 0) == count || howdah_text_left(line) < CLASS_BYTES) {
		return;
	}
	howdah_text_put(line, *is_first ? "" : ",");
	*is_first = false;
	put_class_name(line, entry->name);
	howdah_text_put(line, ":");
	howdah_text_number(line, (uint64_t) count);
	ZVAL_LONG(&now, count);
	zend_hash_index_update(&before, class, &now);
}

static void put_objects(struct howdah_text *line)
{
	bool is_first = true;
	zend_ulong class;
	zval *count;

	count_objects();
	howdah_text_key(line, "objects");
	howdah_text_put(line, "{");
	ZEND_HASH_FOREACH_NUM_KEY_VAL(&present, class, count) {
		put_class(line, class, Z_LVAL_P(count), &is_first);
	} ZEND_HASH_FOREACH_END();
	ZEND_HASH_FOREACH_NUM_KEY_VAL(&before, class, count) {
		if (!zend_hash_index_exists(&present, class)) {
			put_class(line, class, 0, &is_first);
		}
	} ZEND_HASH_FOREACH_END();
	howdah_text_put(line, "}");
}

void howdah_kept_memory_record(void (*release)(void))
{
	static char bytes[LINE_BYTES];
	struct howdah_text line = { bytes, sizeof(bytes) - 16, 0 };
	uint32_t ordered = howdah_memory_recording();

	if (ordered == 0 || requests == 0) {
		if (ordered == 0) {
			end();
		}
		return;
	}
	if (ordered != recording) {
		begin(ordered);
	}
	howdah_text_put(&line, "{\"pid\":");
	howdah_text_number(&line, (uint64_t) getpid());
	howdah_text_member(&line, "number", ++number);
	howdah_text_member(&line, "requests", requests);
	howdah_text_string(&line, "method", method);
	howdah_text_string(&line, "path", path);
	requests = 0;
	if (release) {
		release();
	}
	/* Before anything here allocates. */
	howdah_text_member(&line, "memory", zend_memory_usage(0));
	put_malloc(&line);
	put_descriptors(&line);
	put_opcache(&line);
	put_objects(&line);
	line.room = sizeof(bytes);
	howdah_text_put(&line, "}");
	howdah_log_record(&line);
}
