/* The variables of a request, for $_SERVER, $_ENV and getenv().
 *
 * Most names are known in advance (howdah_variable_name()). For them PHP's strings exist since its start, and a value goes
 * into $_SERVER without more work.
 *
 * ext/filter keeps a second copy of $_SERVER, for filter_input(INPUT_SERVER), filter_input_array() and filter_has_var(): this
 * takes longer than all else. It gets its copy when one of these functions is called first, with the values of the request.
 * The filter gets each variable at once if it changes them (the setting filter.default), or if another extension has
 * replaced it.
 *
 * Nothing here fails. */

#include "variables.h"
#include "exchange.h"
#include "howdah_sapi.h"
#include "process/wrap.h"
#include "worker_mode/superglobals.h"
#include "worker_mode/worker_script.h"
#include "php_globals.h"
#include "php_variables.h"
#include "SAPI.h"
#include "zend_ini.h"

#define MOST_NAMES 64
/* A table with more variables is of no use to the next request. */
#define MOST_PLACES 128

static void (*import_process_environment)(zval *array);

/* By their codes. */
static zend_string *names[MOST_NAMES];
static size_t name_count;
static zend_string *php_self;

/* ext/filter's function; NULL if it is not the one that PHP calls. */
static unsigned (*input_filter)(int arg, const char *var, char **val, size_t val_len, size_t *new_val_len);
static const zend_ini_entry *default_filter;
/* ext/filter has no copy of the request's variables yet. */
static bool filter_is_pending;

/* The table of the current request; NULL if it is of no use to the next one. */
static const zend_array *current;

static zif_handler has_var, input, input_array;

/* ---- the copy of ext/filter ---- */

static bool filter_can_wait(void)
{
	if (sapi_module.input_filter == php_default_input_filter) {
		return true;
	}
	return input_filter && sapi_module.input_filter == input_filter && default_filter->value
		&& zend_string_equals_literal_ci(default_filter->value, "unsafe_raw");
}

static void pass_to_filter(const char *name, const char *value, size_t len)
{
	size_t filtered_len;
	char *copy = estrndup(value, len);

	sapi_module.input_filter(PARSE_SERVER, (char *) name, &copy, len, &filtered_len);
	efree(copy);
}

static zend_string *self_of(const struct howdah_request *request)
{
	const char *script = request && request->script_name ? request->script_name : "";
	const char *info = request && request->path_info ? request->path_info : "";

	return zend_string_concat2(script, strlen(script), info, strlen(info));
}

static void fill_filter(void)
{
	const struct howdah_request *request = howdah_exchange_request();
	zval *server = &PG(http_globals)[TRACK_VARS_SERVER], kept;

	filter_is_pending = false;
	/* The filter also registers the variables there, which the script may have changed. */
	ZVAL_COPY_VALUE(&kept, server);
	array_init(server);
	for (size_t i = 0; request && i < request->count; i++) {
		const struct howdah_variable *variable = &request->variables[i];
		pass_to_filter(variable->name, variable->value, variable->value_len);
	}
	zend_string *self = self_of(request);
	pass_to_filter("PHP_SELF", ZSTR_VAL(self), ZSTR_LEN(self));
	zend_string_release(self);
	zval_ptr_dtor(server);
	ZVAL_COPY_VALUE(server, &kept);
}

/* A function of ext/filter is called. */
static void before_filter(const zend_execute_data *execute_data)
{
	/* Its first argument names a superglobal; one that is no integer may become one. */
	if (ZEND_NUM_ARGS() > 0 && (Z_TYPE_P(ZEND_CALL_ARG(execute_data, 1)) != IS_LONG
		|| Z_LVAL_P(ZEND_CALL_ARG(execute_data, 1)) == PARSE_SERVER)) {
		zend_is_auto_global_str(ZEND_STRL("_SERVER"));
		if (filter_is_pending) {
			fill_filter();
		}
	}
}

static ZEND_NAMED_FUNCTION(fill_before_has_var)
{
	before_filter(execute_data);
	has_var(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

static ZEND_NAMED_FUNCTION(fill_before_input)
{
	before_filter(execute_data);
	input(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

static ZEND_NAMED_FUNCTION(fill_before_input_array)
{
	before_filter(execute_data);
	input_array(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

/* A shared ext/filter is started later: it gets each variable at once. */
static void watch_filter(void)
{
	howdah_wrap("filter_has_var", fill_before_has_var, &has_var);
	howdah_wrap("filter_input", fill_before_input, &input);
	howdah_wrap("filter_input_array", fill_before_input_array, &input_array);
	default_filter = zend_hash_str_find_ptr(EG(ini_directives), ZEND_STRL("filter.default"));
	if (default_filter && has_var && input && input_array && sapi_module.input_filter != php_default_input_filter) {
		input_filter = sapi_module.input_filter;
	}
}

void howdah_variables_forget(void)
{
	filter_is_pending = false;
	current = NULL;
}

/* ---- the variables ---- */

const char *howdah_variables_find(const char *name, size_t len)
{
	const struct howdah_request *request = howdah_exchange_request();

	for (size_t i = 0; request && i < request->count; i++) {
		const struct howdah_variable *variable = &request->variables[i];
		if (variable->name_len == len && memcmp(variable->name, name, len) == 0) {
			return variable->value;
		}
	}
	return NULL;
}

static void register_variable(int source, const char *name, const char *value, size_t len, zval *array)
{
	size_t filtered_len;
	char *copy = estrndup(value, len);

	if (sapi_module.input_filter(source, (char *) name, &copy, len, &filtered_len)) {
		php_register_variable_safe(name, copy, filtered_len, array);
	}
	efree(copy);
}

static void import_request(int source, zval *array)
{
	const struct howdah_request *request = howdah_exchange_request();

	for (size_t i = 0; request && i < request->count; i++) {
		const struct howdah_variable *variable = &request->variables[i];
		register_variable(source, variable->name, variable->value, variable->value_len, array);
	}
}

/* ---- $_SERVER ---- */

/* In worker mode the table of $_SERVER goes on to the next request, which replaces the values that differ: most requests of an
 * application have the same variables, and most values are those of the former request. A script cannot change this table:
 * more than one owner has it, so that PHP copies it for a change. But a script may keep it, and extensions may change it: then,
 * and for other variables, a new table is filled. */
static struct {
	/* NULL, or a table that this file is an owner of. */
	zend_array *table;
	/* The variables, in the order of the request, with PHP_SELF behind them: where they are in the table, and their names
	 * there. */
	uint32_t count;
	uint32_t places[MOST_PLACES];
	const zend_string *keys[MOST_PLACES];
	/* The size of the table, with the entries of the boot and of PHP itself. */
	uint32_t elements;
} former;

/* A variable of the request is there. */
static void note_place(const zend_array *table, const zval *value)
{
	if (value && former.count < MOST_PLACES) {
		const Bucket *bucket = (const Bucket *) value;
		uint32_t place = (uint32_t) (bucket - table->arData);
		for (uint32_t i = 0; i < former.count; i++) {
			if (former.places[i] == place) {
				/* A name that comes twice: the last value would not always win. */
				current = NULL;
				return;
			}
		}
		former.places[former.count] = place;
		former.keys[former.count++] = bucket->key;
	} else {
		current = NULL;
	}
}

/* Whether nothing but $_SERVER itself has the table: PHP has given back its own share already. */
static bool is_unshared(const zend_array *table)
{
	const zval *global = zend_hash_str_find(&EG(symbol_table), ZEND_STRL("_SERVER"));
	uint32_t owners = 1 + (global && Z_TYPE_P(global) == IS_ARRAY && Z_ARR_P(global) == table);

	return GC_REFCOUNT(table) == owners && HT_ITERATORS_COUNT(table) == 0;
}

static bool has_same_name(const struct howdah_variable *variable, const zend_string *key)
{
	/* Names of the boot are other strings. */
	return (variable->code < name_count && names[variable->code] == key) || (ZSTR_LEN(key) == variable->name_len
		&& memcmp(ZSTR_VAL(key), variable->name, variable->name_len) == 0);
}

static bool has_same_variables(const zend_array *table, const struct howdah_request *request)
{
	if (table->nNumOfElements != former.elements || former.count != request->count + 1) {
		return false;
	}
	for (uint32_t i = 0; i < former.count; i++) {
		const Bucket *bucket = &table->arData[former.places[i]];
		if (former.places[i] >= table->nNumUsed || bucket->key != former.keys[i] || Z_TYPE(bucket->val) != IS_STRING
			|| (i < request->count && !has_same_name(&request->variables[i], bucket->key))) {
			return false;
		}
	}
	return true;
}

/* The value of a variable as a new string; NULL if the table has it already. */
static zend_string *changed_value(const zend_array *table, uint32_t index, const char *bytes, size_t len)
{
	const zval *value = &table->arData[former.places[index]].val;

	return Z_STRLEN_P(value) == len && memcmp(Z_STRVAL_P(value), bytes, len) == 0 ? NULL : zend_string_init(bytes, len, 0);
}

/* Gives the former table to `array`, with the values of this request. False if that is impossible. */
static bool take_former_table(zval *array)
{
	const struct howdah_request *request = howdah_exchange_request();
	zend_array *table = Z_ARR_P(array);

	if (!former.table || !request || !is_unshared(former.table) || !has_same_variables(former.table, request)) {
		return false;
	}
	/* The memory limit may end the request here: `array` has nothing of the former request yet. */
	zend_string *changed[MOST_PLACES], *self = self_of(request);
	for (uint32_t i = 0; i < request->count; i++) {
		const struct howdah_variable *variable = &request->variables[i];
		changed[i] = changed_value(former.table, i, variable->value, variable->value_len);
	}
	changed[request->count] = changed_value(former.table, (uint32_t) request->count, ZSTR_VAL(self), ZSTR_LEN(self));
	zend_string_release(self);
	for (uint32_t i = 0; i < former.count; i++) {
		if (changed[i]) {
			zval *value = &former.table->arData[former.places[i]].val;
			zval_ptr_dtor_str(value);
			ZVAL_STR(value, changed[i]);
		}
	}
	/* The two change places, all but their owners. */
	zend_array content = *former.table;
	zend_refcounted_h owners = table->gc, owners_of_former = former.table->gc;
	*former.table = *table;
	*table = content;
	former.table->gc = owners_of_former;
	table->gc = owners;
	return true;
}

void howdah_variables_forget_table(void)
{
	if (former.table) {
		zend_array_release(former.table);
		former.table = NULL;
	}
}

void howdah_variables_keep_table(void)
{
	zval *server = &PG(http_globals)[TRACK_VARS_SERVER];
	/* PHP itself adds entries for these. */
	bool has_more = SG(request_info).auth_user || SG(request_info).auth_password || SG(request_info).auth_digest
		|| PG(register_argc_argv);

	howdah_variables_forget_table();
	if (current && !has_more && Z_TYPE_P(server) == IS_ARRAY && Z_ARR_P(server) == current) {
		former.table = Z_ARR_P(server);
		former.elements = former.table->nNumOfElements;
		GC_ADDREF(former.table);
	}
}

/* The variables of the request, and PHP_SELF. */
static void import_server(zval *array)
{
	const struct howdah_request *request = howdah_exchange_request();
	zend_array *table = Z_ARR_P(array);
	zval value;

	former.count = 0;
	for (size_t i = 0; request && i < request->count; i++) {
		const struct howdah_variable *variable = &request->variables[i];
		if (variable->code < name_count) {
			if (variable->value_len > 0) {
				ZVAL_STRINGL(&value, variable->value, variable->value_len);
			} else {
				ZVAL_EMPTY_STRING(&value);
			}
			note_place(table, zend_hash_update(table, names[variable->code], &value));
		} else {
			php_register_variable_safe(variable->name, variable->value, variable->value_len, array);
			note_place(table, zend_hash_str_find(table, variable->name, variable->name_len));
		}
	}
	ZVAL_STR(&value, self_of(request));
	note_place(table, zend_hash_update(table, php_self, &value));
}

/* The same, each variable through the filter. */
static void import_filtered_server(zval *array)
{
	zend_string *self = self_of(howdah_exchange_request());

	import_request(PARSE_SERVER, array);
	register_variable(PARSE_SERVER, "PHP_SELF", ZSTR_VAL(self), ZSTR_LEN(self), array);
	zend_string_release(self);
}

void howdah_variables_register(zval *array)
{
	bool is_unfiltered = filter_can_wait();

	current = NULL;
	filter_is_pending = is_unfiltered && input_filter;
	if (is_unfiltered && take_former_table(array)) {
		current = Z_ARR_P(array);
		return;
	}
	bool is_of_worker_script = howdah_superglobals_add_boot_server(array);
	if (!is_of_worker_script) {
		import_process_environment(array);
	}
	if (!is_unfiltered) {
		import_filtered_server(array);
		return;
	}
	current = is_of_worker_script ? Z_ARR_P(array) : NULL;
	import_server(array);
}

/* ---- the environment, and the start ---- */

/* The configured environment, then the request's variables: for $_ENV and getenv(), for any variables_order. In worker mode
 * $_ENV belongs to the boot, and gets no request's variables. */
static void import_environment(zval *array)
{
	int is_env = Z_TYPE(PG(http_globals)[TRACK_VARS_ENV]) == IS_ARRAY
		&& Z_ARR_P(array) == Z_ARR(PG(http_globals)[TRACK_VARS_ENV]);

	import_process_environment(array);
	if (!is_env || !howdah_worker_script_is_configured()) {
		import_request(is_env ? PARSE_ENV : PARSE_SERVER, array);
	}
}

void howdah_variables_watch(void)
{
	const char *name;

	while (name_count < MOST_NAMES && (name = howdah_variable_name(name_count))) {
		names[name_count++] = zend_string_init_interned(name, strlen(name), 1);
	}
	php_self = zend_string_init_interned(ZEND_STRL("PHP_SELF"), 1);
	import_process_environment = php_import_environment_variables;
	php_import_environment_variables = import_environment;
	watch_filter();
}
