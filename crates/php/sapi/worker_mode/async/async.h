/* Async mode: the worker script runs an event loop, and handles several requests at a time. */
#ifndef HOWDAH_ASYNC_H
#define HOWDAH_ASYNC_H

#include "php.h"

/* For the module's start: registers the functions and the class. */
void howdah_async_register(int module_type);

/* request.c */
void howdah_async_register_request(void);
/* Makes the object of a request that was accepted. */
void howdah_async_make_request(zval *object, uint32_t number);

#endif
