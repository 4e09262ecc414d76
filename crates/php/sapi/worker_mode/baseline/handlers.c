/* Handlers of errors and exceptions, with the stacks that restore_error_handler() returns to. */
#include "worker_mode/baseline/parts.h"
#include "php.h"
#include "zend_stack.h"

/* The handlers, the current one last, and for error handlers their levels. */
struct handlers {
	zval *current;
	zend_stack *former;
	int *current_level;
	zend_stack *former_levels;
	int count;
	zval *kept;
	int *kept_levels;
};

static struct handlers error_handlers, exception_handlers;

static zval *handler_at(const struct handlers *handlers, int index)
{
	return index < zend_stack_count(handlers->former) ? (zval *) zend_stack_base(handlers->former) + index
		: handlers->current;
}

static int level_at(const struct handlers *handlers, int index)
{
	return index < zend_stack_count(handlers->former_levels) ? ((int *) zend_stack_base(handlers->former_levels))[index]
		: *handlers->current_level;
}

static void take_stack(struct handlers *handlers)
{
	handlers->count = zend_stack_count(handlers->former) + 1;
	handlers->kept = safe_emalloc(handlers->count, sizeof(zval), 0);
	handlers->kept_levels = safe_emalloc(handlers->count, sizeof(int), 0);
	for (int i = 0; i < handlers->count; i++) {
		ZVAL_COPY(&handlers->kept[i], handler_at(handlers, i));
		handlers->kept_levels[i] = handlers->current_level ? level_at(handlers, i) : 0;
	}
}

static bool are_changed(const struct handlers *handlers)
{
	if (zend_stack_count(handlers->former) + 1 != handlers->count) {
		return true;
	}
	for (int i = 0; i < handlers->count; i++) {
		zval *now = handler_at(handlers, i), *kept = &handlers->kept[i];
		if (Z_TYPE_P(now) != Z_TYPE_P(kept) || (Z_REFCOUNTED_P(now) && Z_COUNTED_P(now) != Z_COUNTED_P(kept))) {
			return true;
		}
		/* A function's name may be one interned string or another. */
		if (Z_TYPE_P(now) == IS_STRING && Z_STR_P(now) != Z_STR_P(kept)) {
			return true;
		}
		if (handlers->current_level && level_at(handlers, i) != handlers->kept_levels[i]) {
			return true;
		}
	}
	return false;
}

static void restore_stack(struct handlers *handlers)
{
	if (!are_changed(handlers)) {
		return;
	}
	/* A destructor may run: first the new state, then the old handlers are released. */
	int count = zend_stack_count(handlers->former) + 1;
	zval *old = safe_emalloc(count, sizeof(zval), 0);
	for (int i = 0; i < count; i++) {
		ZVAL_COPY_VALUE(&old[i], handler_at(handlers, i));
	}
	while (!zend_stack_is_empty(handlers->former)) {
		zend_stack_del_top(handlers->former);
	}
	while (handlers->former_levels && !zend_stack_is_empty(handlers->former_levels)) {
		zend_stack_del_top(handlers->former_levels);
	}
	for (int i = 0; i < handlers->count; i++) {
		zval kept;
		bool is_current = i == handlers->count - 1;
		ZVAL_COPY(&kept, &handlers->kept[i]);
		if (is_current) {
			ZVAL_COPY_VALUE(handlers->current, &kept);
		} else {
			zend_stack_push(handlers->former, &kept);
		}
		if (handlers->current_level && is_current) {
			*handlers->current_level = handlers->kept_levels[i];
		} else if (handlers->current_level) {
			zend_stack_push(handlers->former_levels, &handlers->kept_levels[i]);
		}
	}
	for (int i = 0; i < count; i++) {
		zval_ptr_dtor(&old[i]);
	}
	efree(old);
}

void howdah_take_handlers(void)
{
	error_handlers = (struct handlers) {
		.current = &EG(user_error_handler), .former = &EG(user_error_handlers),
		.current_level = &EG(user_error_handler_error_reporting),
		.former_levels = &EG(user_error_handlers_error_reporting),
	};
	exception_handlers = (struct handlers) {
		.current = &EG(user_exception_handler), .former = &EG(user_exception_handlers),
	};
	take_stack(&error_handlers);
	take_stack(&exception_handlers);
}

void howdah_restore_handlers(void)
{
	restore_stack(&error_handlers);
	restore_stack(&exception_handlers);
}
