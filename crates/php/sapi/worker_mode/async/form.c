/* Async mode: the form in the body of a request, with PHP's own parsers.
 *
 * They read the body from where the SAPI has it, and leave what they find in globals of the one request that they know:
 * all of that is exchanged while they run. No user code runs meanwhile: warnings, such as one about `max_input_vars`, go to
 * the log. A bailout at `memory_limit` is passed on when the globals are restored.
 *
 * Uploaded files are in PHP's list, so that is_uploaded_file() and move_uploaded_file() know them. They are removed with the
 * object of their request. */

#include "worker_mode/async/form.h"
#include "howdah_sapi.h"
#include "php_globals.h"
#include "php_variables.h"
#include "rfc1867.h"
#include "SAPI.h"

static const char multipart[] = "multipart/form-data", urlencoded[] = "application/x-www-form-urlencoded";

/* The rest of the body, which the parser has not read yet. */
static struct {
	const char *bytes;
	size_t len;
} unread;

static size_t read_body(char *buffer, size_t len)
{
	size_t part = len < unread.len ? len : unread.len;

	memcpy(buffer, unread.bytes, part);
	unread.bytes += part;
	unread.len -= part;
	return part;
}

/* Whether a Content-Type is this one; parameters may follow. */
static bool is_type(const char *content_type, const char *type, size_t len)
{
	return strncasecmp(content_type, type, len) == 0 && strchr("; ,\t", content_type[len]);
}

/* Adds the files of a form to PHP's list, which keeps their names, and to `uploads`. */
static void keep_uploads(HashTable *made, HashTable *former, zval *uploads)
{
	zend_string *name;

	SG(rfc1867_uploaded_files) = former ? former : made;
	if (!made) {
		return;
	}
	ZEND_HASH_FOREACH_STR_KEY(made, name) {
		add_next_index_str(uploads, zend_string_copy(name));
		if (former) {
			zend_hash_add_ptr(former, name, zend_string_copy(name));
		}
	} ZEND_HASH_FOREACH_END();
	if (former) {
		zend_hash_destroy(made);
		FREE_HASHTABLE(made);
	}
}

static void parse_multipart(const char *content_type, const zend_string *body, struct howdah_form *form)
{
	/* The parser writes into it. */
	char *type = estrdup(content_type);
	HashTable *former_uploads = SG(rfc1867_uploaded_files);
	zval former_files = PG(http_globals)[TRACK_VARS_FILES], handler = EG(user_error_handler);
	sapi_request_info former_info = SG(request_info);
	int64_t former_read = SG(read_post_bytes);
	unsigned char former_is_read = SG(post_read);
	size_t (*former_reader)(char *, size_t) = sapi_module.read_post;
	unsigned int (*former_filter)(int, const char *, char **, size_t, size_t *) = sapi_module.input_filter;
	/* The upload progress of the session module belongs to a request of PHP's. */
	int (*former_callback)(unsigned int, void *, void **) = php_rfc1867_callback;
	bool has_bailed_out = false;

	unread.bytes = ZSTR_VAL(body);
	unread.len = ZSTR_LEN(body);
	sapi_module.read_post = read_body;
	/* ext/filter would register the fields in $_POST. */
	sapi_module.input_filter = php_default_input_filter;
	php_rfc1867_callback = NULL;
	SG(rfc1867_uploaded_files) = NULL;
	SG(request_info).content_length = (zend_long) ZSTR_LEN(body);
	SG(read_post_bytes) = 0;
	SG(post_read) = 0;
	ZVAL_UNDEF(&EG(user_error_handler));
	array_init(&PG(http_globals)[TRACK_VARS_FILES]);
	zend_try {
		rfc1867_post_handler(type, &form->post);
	} zend_catch {
		has_bailed_out = true;
	} zend_end_try();
	zval_ptr_dtor(&form->files);
	form->files = PG(http_globals)[TRACK_VARS_FILES];
	PG(http_globals)[TRACK_VARS_FILES] = former_files;
	EG(user_error_handler) = handler;
	SG(post_read) = former_is_read;
	SG(read_post_bytes) = former_read;
	SG(request_info) = former_info;
	php_rfc1867_callback = former_callback;
	sapi_module.input_filter = former_filter;
	sapi_module.read_post = former_reader;
	keep_uploads(SG(rfc1867_uploaded_files), former_uploads, &form->uploads);
	efree(type);
	if (has_bailed_out) {
		zend_bailout();
	}
}

static void parse_urlencoded(const zend_string *body, struct howdah_form *form)
{
	zval handler = EG(user_error_handler);

	ZVAL_UNDEF(&EG(user_error_handler));
	/* It frees the copy. */
	sapi_module.treat_data(PARSE_STRING, estrndup(ZSTR_VAL(body), ZSTR_LEN(body)), &form->post);
	EG(user_error_handler) = handler;
}

bool howdah_async_is_form(const char *content_type)
{
	return content_type && (is_type(content_type, multipart, sizeof(multipart) - 1)
		|| is_type(content_type, urlencoded, sizeof(urlencoded) - 1));
}

void howdah_async_parse_form(const char *content_type, const zend_string *body, struct howdah_form *form)
{
	array_init(&form->post);
	array_init(&form->files);
	array_init(&form->uploads);
	form->is_parsed = true;
	if (!howdah_async_is_form(content_type)) {
		return;
	}
	if (is_type(content_type, multipart, sizeof(multipart) - 1)) {
		parse_multipart(content_type, body, form);
	} else {
		parse_urlencoded(body, form);
	}
}

void howdah_async_free_form(struct howdah_form *form)
{
	HashTable *list = SG(rfc1867_uploaded_files);
	zval *name;

	if (!form->is_parsed) {
		return;
	}
	ZEND_HASH_FOREACH_VAL(Z_ARRVAL(form->uploads), name) {
		/* A file that the script has moved is no longer in the list. */
		if (list && !howdah_forked && zend_hash_exists(list, Z_STR_P(name))) {
			VCWD_UNLINK(Z_STRVAL_P(name));
			zend_hash_del(list, Z_STR_P(name));
		}
	} ZEND_HASH_FOREACH_END();
	zval_ptr_dtor(&form->post);
	zval_ptr_dtor(&form->files);
	zval_ptr_dtor(&form->uploads);
	form->is_parsed = false;
}
