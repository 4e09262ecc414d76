/* Worker mode: one script boots and then handles one request after another. See worker_script.c. */
#ifndef HOWDAH_WORKER_SCRIPT_H
#define HOWDAH_WORKER_SCRIPT_H

#include "php.h"

/* For the module's start: registers the functions of worker mode if this application has a worker script. */
void howdah_worker_script_register(int module_type);

/* Whether this application has a worker script. */
int howdah_worker_script_is_configured(void);
/* Whether the worker script has asked for its first request. */
int howdah_worker_script_is_booted(void);
/* Whether the worker script runs outside of a request: its output belongs to no client. */
int howdah_worker_script_has_no_client(void);
/* Writes such output to standard error. */
size_t howdah_worker_script_write(const char *bytes, size_t len);
/* Ends the handler of the current request like exit(), because its client is gone. 0: no handler runs. */
int howdah_worker_script_unwinds(void);

/* Whether it runs an event loop, in async mode. */
int howdah_worker_script_is_async(void);
/* Async mode: the boot is over, and the script runs its event loop. False with an exception: the boot has failed. */
bool howdah_worker_script_begin_loop(void);

/* howdah\handle_request() and frankenphp_handle_request() */
PHP_FUNCTION(howdah_handle_request);

#endif
