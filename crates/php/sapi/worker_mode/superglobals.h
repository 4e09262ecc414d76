/* The superglobals of each request of a worker script. */
#ifndef HOWDAH_SUPERGLOBALS_H
#define HOWDAH_SUPERGLOBALS_H

#include "php.h"

/* The boot is over: $_SERVER and $_ENV belong to each request from now on. */
void howdah_superglobals_take(void);
/* Fills the superglobals from the current request. */
void howdah_superglobals_refresh(void);
/* Between two requests: releases the variables of the last one. $_SERVER is as the boot left it. */
void howdah_superglobals_release(void);
/* Removes $_SESSION. */
void howdah_superglobals_forget_session(void);
/* Closes the stream of a request's body, and the streams that read from it. */
void howdah_superglobals_close_body(php_stream *body);
/* Adds the entries that the boot left in $_SERVER. 0 if the boot has not ended, or has not used $_SERVER. */
int howdah_superglobals_add_boot_server(zval *array);

#endif
