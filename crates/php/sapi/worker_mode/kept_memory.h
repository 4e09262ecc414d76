/* The memory that a worker script keeps from one request to the next, for `howdah leaks`. See kept_memory.c. */
#ifndef HOWDAH_KEPT_MEMORY_H
#define HOWDAH_KEPT_MEMORY_H

#include "howdah_sapi.h"

/* All of these do nothing while no recording goes on. */

/* A request ends: notes its name. It is still the current one of the exchange. */
void howdah_kept_memory_note_request(void);
/* Async mode: the script gets a request. */
void howdah_kept_memory_note_held(const struct howdah_request *request);
/* Frees cycles that PHP would free later. Destructors run: call it where code of the script may run. */
void howdah_kept_memory_collect(void);
/* Records the memory after the request, and after the code that ran behind it. `release`, which may be NULL, frees what PHP
 * would keep until the next request. */
void howdah_kept_memory_record(void (*release)(void));

#endif
