/* howdah\Async\Request: an HTTP request of async mode, and its response.
 *
 * The object has a number, under which Rust has the request. It can be used after the response, too. An object that is freed
 * before its response is complete answers 500, or cuts the response off.
 *
 * A process that the script forks has copies of the objects: they do nothing there. */

#include "worker_mode/async/async.h"
#include "worker_mode/async/form.h"
#include "functions/both_modes.h"
#include "howdah_sapi.h"
#include "php_variables.h"
#include "SAPI.h"
#include "zend_exceptions.h"
#include "zend_smart_str.h"
#include "ext/spl/spl_exceptions.h"

/* The part of a body that is read at once. */
#define BODY_PART (64 * 1024)

struct request_object {
	uint32_t number;
	enum { OPEN, STARTED, ENDED } state;
	/* NULL before it is read. */
	zend_string *body;
	struct howdah_form form;
	zend_object std;
};

static zend_class_entry *class_entry;
static zend_object_handlers handlers;

static struct request_object *of(zend_object *object)
{
	return (struct request_object *) ((char *) object - offsetof(struct request_object, std));
}

#define THIS of(Z_OBJ_P(ZEND_THIS))

/* ---- the request ---- */

static const struct howdah_request *request_of(const struct request_object *object)
{
	static const struct howdah_request none = { .method = "", .uri = "", .query_string = "" };
	const struct howdah_request *request = howdah_async_request(object->number);

	/* Extensions such as PDO (FETCH_CLASSTYPE) make objects of any class, without its constructor. */
	return request ? request : &none;
}

PHP_METHOD(howdah_async_request, method)
{
	ZEND_PARSE_PARAMETERS_NONE();
	RETURN_STRING(request_of(THIS)->method);
}

PHP_METHOD(howdah_async_request, uri)
{
	ZEND_PARSE_PARAMETERS_NONE();
	RETURN_STRING(request_of(THIS)->uri);
}

PHP_METHOD(howdah_async_request, path)
{
	ZEND_PARSE_PARAMETERS_NONE();
	const char *uri = request_of(THIS)->uri;

	RETURN_STRINGL(uri, strcspn(uri, "?"));
}

PHP_METHOD(howdah_async_request, query)
{
	ZEND_PARSE_PARAMETERS_NONE();
	array_init(return_value);
	sapi_module.treat_data(PARSE_STRING, estrdup(request_of(THIS)->query_string), return_value);
}

/* Whether a variable such as HTTP_USER_AGENT has the header of this name. */
static bool has_header(const struct howdah_variable *variable, const char *name, size_t len)
{
	bool is_content = (len == 12 && strncasecmp(name, "Content-Type", 12) == 0)
		|| (len == 14 && strncasecmp(name, "Content-Length", 14) == 0);
	size_t prefix = is_content ? 0 : 5;

	if (variable->name_len != prefix + len || memcmp(variable->name, "HTTP_", prefix) != 0) {
		return false;
	}
	for (size_t i = 0; i < len; i++) {
		char upper = name[i] == '-' ? '_' : (char) (name[i] >= 'a' && name[i] <= 'z' ? name[i] - 'a' + 'A' : name[i]);
		if (variable->name[prefix + i] != upper) {
			return false;
		}
	}
	return true;
}

PHP_METHOD(howdah_async_request, header)
{
	zend_string *name;

	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_STR(name)
	ZEND_PARSE_PARAMETERS_END();
	const struct howdah_request *request = request_of(THIS);

	for (size_t i = 0; i < request->count; i++) {
		if (has_header(&request->variables[i], ZSTR_VAL(name), ZSTR_LEN(name))) {
			RETURN_STRINGL(request->variables[i].value, request->variables[i].value_len);
		}
	}
	RETURN_NULL();
}

PHP_METHOD(howdah_async_request, headers)
{
	ZEND_PARSE_PARAMETERS_NONE();
	array_init(return_value);
	howdah_add_request_headers(return_value, request_of(THIS));
}

PHP_METHOD(howdah_async_request, server)
{
	ZEND_PARSE_PARAMETERS_NONE();
	const struct howdah_request *request = request_of(THIS);

	array_init_size(return_value, (uint32_t) request->count);
	for (size_t i = 0; i < request->count; i++) {
		const struct howdah_variable *variable = &request->variables[i];
		add_assoc_stringl_ex(return_value, variable->name, variable->name_len, (char *) variable->value,
			variable->value_len);
	}
}

/* The whole body. NULL with an exception. */
static zend_string *body_of(struct request_object *object)
{
	smart_str body = { 0 };
	long got;

	if (object->body) {
		return object->body;
	}
	if (object->state == ENDED || howdah_forked) {
		zend_throw_error(NULL, "The body must be read before the response is complete");
		return NULL;
	}
	do {
		smart_str_alloc(&body, BODY_PART, 0);
		got = howdah_async_read_body(object->number, ZSTR_VAL(body.s) + ZSTR_LEN(body.s), BODY_PART);
		ZSTR_LEN(body.s) += got > 0 ? (size_t) got : 0;
	} while (got > 0);
	if (got < 0) {
		smart_str_free(&body);
		zend_throw_exception(spl_ce_RuntimeException, "The client has left before its request was complete", 0);
		return NULL;
	}
	object->body = smart_str_extract(&body);
	return object->body;
}

PHP_METHOD(howdah_async_request, body)
{
	ZEND_PARSE_PARAMETERS_NONE();
	zend_string *body = body_of(THIS);

	if (!body) {
		RETURN_THROWS();
	}
	RETURN_STR_COPY(body);
}

/* The form in the body. NULL with an exception. */
static const struct howdah_form *form_of(struct request_object *object)
{
	const char *content_type = request_of(object)->content_type;

	if (!object->form.is_parsed) {
		/* Another body may be large: it is not read for this. */
		zend_string *body = howdah_async_is_form(content_type) ? body_of(object) : ZSTR_EMPTY_ALLOC();
		if (!body) {
			return NULL;
		}
		howdah_async_parse_form(content_type, body, &object->form);
	}
	return &object->form;
}

PHP_METHOD(howdah_async_request, post)
{
	ZEND_PARSE_PARAMETERS_NONE();
	const struct howdah_form *form = form_of(THIS);

	if (!form) {
		RETURN_THROWS();
	}
	RETURN_COPY(&form->post);
}

PHP_METHOD(howdah_async_request, files)
{
	ZEND_PARSE_PARAMETERS_NONE();
	const struct howdah_form *form = form_of(THIS);

	if (!form) {
		RETURN_THROWS();
	}
	RETURN_COPY(&form->files);
}

/* ---- the response ---- */

static bool is_name(const zend_string *name)
{
	static const char others[] = "!#$%&'*+-.^_`|~";

	for (size_t i = 0; i < ZSTR_LEN(name); i++) {
		char c = ZSTR_VAL(name)[i];
		bool is_alphanumeric = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
		if (c == '\0' || (!is_alphanumeric && !strchr(others, c))) {
			return false;
		}
	}
	return ZSTR_LEN(name) > 0;
}

static bool is_value(const zend_string *value)
{
	for (size_t i = 0; i < ZSTR_LEN(value); i++) {
		char c = ZSTR_VAL(value)[i];
		if (c == '\r' || c == '\n' || c == '\0') {
			return false;
		}
	}
	return true;
}

static bool add_line(zval *lines, const zend_string *name, zval *value)
{
	zend_string *temporary, *text = zval_try_get_tmp_string(value, &temporary);
	smart_str line = { 0 };

	if (!text) {
		return false;
	}
	if (!is_value(text)) {
		zend_argument_value_error(2, "must not have a value with a line break or a NUL, in \"%s\"", ZSTR_VAL(name));
		zend_tmp_string_release(temporary);
		return false;
	}
	smart_str_append(&line, name);
	smart_str_appends(&line, ": ");
	smart_str_append(&line, text);
	add_next_index_str(lines, smart_str_extract(&line));
	zend_tmp_string_release(temporary);
	return true;
}

static bool add_header(zval *lines, const zend_string *name, zval *value)
{
	zval kept, *one;
	bool is_valid = true;

	/* A __toString() may replace a value that is a reference. */
	ZVAL_COPY_DEREF(&kept, value);
	if (Z_TYPE(kept) != IS_ARRAY) {
		is_valid = add_line(lines, name, &kept);
	} else {
		ZEND_HASH_FOREACH_VAL(Z_ARRVAL(kept), one) {
			is_valid = is_valid && add_line(lines, name, one);
		} ZEND_HASH_FOREACH_END();
	}
	zval_ptr_dtor(&kept);
	return is_valid;
}

/* Adds the lines of the headers. False with an exception. */
static bool add_headers(zval *lines, zend_long status, HashTable *headers, bool has_body)
{
	bool has_type = !has_body || status == 204 || status == 304;
	zend_string *name;
	zval *value;

	if (status < 200 || status > 999) {
		zend_argument_value_error(1, "must be between 200 and 999");
		return false;
	}
	ZEND_HASH_FOREACH_STR_KEY_VAL(headers, name, value) {
		if (!name || !is_name(name)) {
			zend_argument_value_error(2, "must have names of headers as keys");
			return false;
		}
		has_type = has_type || zend_string_equals_literal_ci(name, "content-type");
		if (!add_header(lines, name, value)) {
			return false;
		}
	} ZEND_HASH_FOREACH_END();
	if (!has_type) {
		char *type = sapi_get_default_content_type();
		smart_str line = { 0 };
		smart_str_appends(&line, "Content-Type: ");
		smart_str_appends(&line, type);
		add_next_index_str(lines, smart_str_extract(&line));
		efree(type);
	}
	return true;
}

static bool must_be_unanswered(const struct request_object *object)
{
	if (object->state == OPEN) {
		return true;
	}
	zend_throw_error(NULL, "The response of this request has begun already: it is written once");
	return false;
}

/* Completes the head of the response in Rust. False with an exception. The texts of all values are made before that: a
 * __toString() may answer other requests, and even this one. */
static bool make_head(const struct request_object *object, zend_long status, HashTable *headers, bool has_body)
{
	zval lines, *line;

	array_init(&lines);
	bool is_valid = must_be_unanswered(object) && add_headers(&lines, status, headers, has_body)
		&& must_be_unanswered(object);
	if (is_valid) {
		howdah_head_begin((int) status, "", 0);
		ZEND_HASH_FOREACH_VAL(Z_ARRVAL(lines), line) {
			howdah_head_line(Z_STRVAL_P(line), Z_STRLEN_P(line));
		} ZEND_HASH_FOREACH_END();
	}
	zval_ptr_dtor(&lines);
	return is_valid;
}

static bool must_be_started(const struct request_object *object)
{
	if (object->state == STARTED) {
		return true;
	}
	zend_throw_error(NULL, object->state == OPEN ? "start() must begin the response first" : "The response is complete");
	return false;
}

static bool write_bytes(const struct request_object *object, const zend_string *bytes)
{
	return ZSTR_LEN(bytes) == 0 ? howdah_async_is_open(object->number)
		: howdah_async_write(object->number, ZSTR_VAL(bytes), ZSTR_LEN(bytes));
}

static void finish(struct request_object *object)
{
	object->state = ENDED;
	howdah_async_finish(object->number);
}

PHP_METHOD(howdah_async_request, isOpen)
{
	ZEND_PARSE_PARAMETERS_NONE();
	RETURN_BOOL(!howdah_forked && howdah_async_is_open(THIS->number));
}

PHP_METHOD(howdah_async_request, respond)
{
	zend_long status = 200;
	HashTable *headers = (HashTable *) &zend_empty_array;
	zend_string *body = ZSTR_EMPTY_ALLOC();

	ZEND_PARSE_PARAMETERS_START(0, 3)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(status)
		Z_PARAM_ARRAY_HT(headers)
		Z_PARAM_STR(body)
	ZEND_PARSE_PARAMETERS_END();
	struct request_object *object = THIS;

	if (!make_head(object, status, headers, ZSTR_LEN(body) > 0)) {
		RETURN_THROWS();
	}
	if (howdah_forked) {
		RETURN_FALSE;
	}
	bool is_written = howdah_async_write_head(object->number) && write_bytes(object, body);
	finish(object);
	RETURN_BOOL(is_written);
}

PHP_METHOD(howdah_async_request, start)
{
	zend_long status = 200;
	HashTable *headers = (HashTable *) &zend_empty_array;

	ZEND_PARSE_PARAMETERS_START(0, 2)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(status)
		Z_PARAM_ARRAY_HT(headers)
	ZEND_PARSE_PARAMETERS_END();
	struct request_object *object = THIS;

	if (!make_head(object, status, headers, true)) {
		RETURN_THROWS();
	}
	if (howdah_forked) {
		RETURN_FALSE;
	}
	object->state = STARTED;
	bool is_written = howdah_async_write_head(object->number);
	howdah_async_flush(object->number);
	RETURN_BOOL(is_written);
}

/* Writes part of the body. */
static void write_part(zval *return_value, struct request_object *object, const zend_string *bytes, bool is_last)
{
	if (!must_be_started(object)) {
		RETURN_THROWS();
	}
	if (howdah_forked) {
		RETURN_FALSE;
	}
	bool is_written = write_bytes(object, bytes);
	if (is_last) {
		finish(object);
	} else {
		howdah_async_flush(object->number);
	}
	RETURN_BOOL(is_written);
}

PHP_METHOD(howdah_async_request, write)
{
	zend_string *bytes;

	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_STR(bytes)
	ZEND_PARSE_PARAMETERS_END();
	write_part(return_value, THIS, bytes, false);
}

PHP_METHOD(howdah_async_request, end)
{
	zend_string *bytes = ZSTR_EMPTY_ALLOC();

	ZEND_PARSE_PARAMETERS_START(0, 1)
		Z_PARAM_OPTIONAL
		Z_PARAM_STR(bytes)
	ZEND_PARSE_PARAMETERS_END();
	write_part(return_value, THIS, bytes, true);
}

/* ---- the class ---- */

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_string, 0, 0, IS_STRING, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_array, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_bool, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_header, 0, 1, IS_STRING, 1)
	ZEND_ARG_TYPE_INFO(0, name, IS_STRING, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_respond, 0, 0, _IS_BOOL, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, status, IS_LONG, 0, "200")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, headers, IS_ARRAY, 0, "[]")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, body, IS_STRING, 0, "\"\"")
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_start, 0, 0, _IS_BOOL, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, status, IS_LONG, 0, "200")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, headers, IS_ARRAY, 0, "[]")
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_write, 0, 1, _IS_BOOL, 0)
	ZEND_ARG_TYPE_INFO(0, bytes, IS_STRING, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_end, 0, 0, _IS_BOOL, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, bytes, IS_STRING, 0, "\"\"")
ZEND_END_ARG_INFO()

static const zend_function_entry methods[] = {
	PHP_ME(howdah_async_request, method, arginfo_string, ZEND_ACC_PUBLIC)
	PHP_ME(howdah_async_request, uri, arginfo_string, ZEND_ACC_PUBLIC)
	PHP_ME(howdah_async_request, path, arginfo_string, ZEND_ACC_PUBLIC)
	PHP_ME(howdah_async_request, query, arginfo_array, ZEND_ACC_PUBLIC)
	PHP_ME(howdah_async_request, header, arginfo_header, ZEND_ACC_PUBLIC)
	PHP_ME(howdah_async_request, headers, arginfo_array, ZEND_ACC_PUBLIC)
	PHP_ME(howdah_async_request, server, arginfo_array, ZEND_ACC_PUBLIC)
	PHP_ME(howdah_async_request, body, arginfo_string, ZEND_ACC_PUBLIC)
	PHP_ME(howdah_async_request, post, arginfo_array, ZEND_ACC_PUBLIC)
	PHP_ME(howdah_async_request, files, arginfo_array, ZEND_ACC_PUBLIC)
	PHP_ME(howdah_async_request, isOpen, arginfo_bool, ZEND_ACC_PUBLIC)
	PHP_ME(howdah_async_request, respond, arginfo_respond, ZEND_ACC_PUBLIC)
	PHP_ME(howdah_async_request, start, arginfo_start, ZEND_ACC_PUBLIC)
	PHP_ME(howdah_async_request, write, arginfo_write, ZEND_ACC_PUBLIC)
	PHP_ME(howdah_async_request, end, arginfo_end, ZEND_ACC_PUBLIC)
	PHP_FE_END
};

static void free_request(zend_object *std)
{
	struct request_object *object = of(std);

	if (!howdah_forked) {
		howdah_async_release(object->number);
	}
	if (object->body) {
		zend_string_release(object->body);
	}
	howdah_async_free_form(&object->form);
	zend_object_std_dtor(std);
}

static zend_object *create_request(zend_class_entry *entry)
{
	struct request_object *object = zend_object_alloc(sizeof(*object), entry);

	object->number = UINT32_MAX;
	zend_object_std_init(&object->std, entry);
	object->std.handlers = &handlers;
	return &object->std;
}

static zend_function *refuse_new(zend_object *object)
{
	(void) object;
	zend_throw_error(NULL, "howdah\\Async\\accept() makes the requests");
	return NULL;
}

void howdah_async_make_request(zval *object, uint32_t number)
{
	object_init_ex(object, class_entry);
	of(Z_OBJ_P(object))->number = number;
}

void howdah_async_register_request(void)
{
	zend_class_entry entry;

	INIT_CLASS_ENTRY(entry, "howdah\\Async\\Request", methods);
	class_entry = zend_register_internal_class(&entry);
	class_entry->ce_flags |= ZEND_ACC_FINAL | ZEND_ACC_NO_DYNAMIC_PROPERTIES | ZEND_ACC_NOT_SERIALIZABLE;
	class_entry->create_object = create_request;
	memcpy(&handlers, zend_get_std_object_handlers(), sizeof(handlers));
	handlers.offset = offsetof(struct request_object, std);
	handlers.free_obj = free_request;
	handlers.clone_obj = NULL;
	handlers.get_constructor = refuse_new;
}
