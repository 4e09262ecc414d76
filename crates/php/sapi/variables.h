/* The variables of a request, for $_SERVER, $_ENV and getenv(). */
#ifndef HOWDAH_VARIABLES_H
#define HOWDAH_VARIABLES_H

#include "php.h"

/* For the module's start. */
void howdah_variables_watch(void);
/* The value of a variable of the current request, or NULL. */
const char *howdah_variables_find(const char *name, size_t len);
/* PHP fills $_SERVER. */
void howdah_variables_register(zval *array);
/* Worker mode: the superglobals of a request are filled. The next request may use the table of $_SERVER. */
void howdah_variables_keep_table(void);
void howdah_variables_forget_table(void);
/* ext/filter has forgotten the request. */
void howdah_variables_forget(void);

#endif
